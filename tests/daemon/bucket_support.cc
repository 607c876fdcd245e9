#include "tests/daemon/bucket_support.h"

#include <bit>
#include <cstring>
#include <stdexcept>

#include "kernels/half_types.h"

namespace dmuon::test {
namespace {

// Where an entry lies in the payload: 64-byte aligned, one after another.
struct Place {
  uint32_t piece = 0;
  int64_t offset = 0;
  std::vector<int64_t> elements;
};

std::vector<Place> PlacesOf(const Job& job, uint32_t trainer, uint32_t bucket, int64_t* payload) {
  std::vector<Place> places;
  *payload = 0;
  for (uint32_t piece : job.plan.buckets[bucket].pieces) {
    const scheduler::Piece& planned = job.plan.pieces[piece];
    const ParameterSpec& parameter = job.spec.parameters[planned.parameter];
    Place& place = places.emplace_back();
    place.piece = piece;
    place.offset = *payload;
    place.elements =
        PackedElements(parameter.shape, job.regions[trainer][planned.parameter], planned.geometry);
    auto bytes = static_cast<int64_t>(place.elements.size()) * SizeOf(parameter.dtype);
    *payload += (bytes + 63) / 64 * 64;
  }
  return places;
}

void StoreElement(DType dtype, float value, std::byte* at) {
  if (dtype == DType::kFloat32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  if (dtype == DType::kFloat16 &&
      kernels::FloatFromFloat16(kernels::Float16FromFloat(value)) == value) {
    uint16_t half = kernels::Float16FromFloat(value);
    std::memcpy(at, &half, sizeof(half));
    return;
  }
  auto bits = std::bit_cast<uint32_t>(value);
  if (dtype != DType::kBFloat16 || (bits & 0xffff) != 0) {
    throw std::invalid_argument("test values must be exact in their type");
  }
  auto upper = static_cast<uint16_t>(bits >> 16);
  std::memcpy(at, &upper, sizeof(upper));
}

float LoadElement(DType dtype, const std::byte* at) {
  if (dtype == DType::kFloat32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t upper = 0;
  std::memcpy(&upper, at, sizeof(upper));
  return std::bit_cast<float>(static_cast<uint32_t>(upper) << 16);
}

}  // namespace

bool Contains(const std::vector<int64_t>& shape, const Region& region, int64_t element) {
  for (size_t d = shape.size(); d-- > 0;) {
    int64_t index = element % shape[d];
    element /= shape[d];
    if (index < region.start[d] || index >= region.start[d] + region.extent[d]) return false;
  }
  return true;
}

std::vector<int64_t> PackedElements(const std::vector<int64_t>& shape, const Region& region,
                                    const StridedMatrix& piece) {
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < piece.rows; ++i) {
    for (int64_t j = 0; j < piece.cols; ++j) {
      int64_t element = piece.base + i * piece.row_stride + j;
      if (Contains(shape, region, element)) elements.push_back(element);
    }
  }
  return elements;
}

uint32_t Job::ParameterNamed(const std::string& name) const {
  for (uint32_t i = 0; i < spec.parameters.size(); ++i) {
    if (spec.parameters[i].name == name) return i;
  }
  throw std::invalid_argument("the test's spec has no parameter " + name);
}

Job MakeJob(const std::string& spec_json, int owners, uint32_t trainers, int64_t bucket_bytes) {
  Job job;
  job.spec = ParseSessionSpec(spec_json);
  scheduler::PlanOptions options;
  options.owners = owners;
  options.bucket_bytes = bucket_bytes;
  job.plan = scheduler::MakePlan(job.spec, options);
  std::vector<Region> whole;
  for (const ParameterSpec& parameter : job.spec.parameters) {
    whole.push_back(Region::Whole(parameter.shape));
  }
  job.regions.assign(trainers, whole);
  job.host_ids.assign(trainers, "node");
  return job;
}

std::vector<TrainerInfo> TrainerInfosOf(const Job& job) {
  std::vector<TrainerInfo> infos;
  for (uint32_t trainer = 0; trainer < job.trainers(); ++trainer) {
    TrainerInfo& info = infos.emplace_back();
    info.attached = true;
    info.host_id = job.host_ids[trainer];
    info.channel = v1::CHANNEL_GRPC;
    info.regions = job.regions[trainer];
    info.contributions.assign(job.spec.parameters.size(), job.contribution);
    info.layout = MakeTrainerLayout(job.spec, job.plan, info.regions);
  }
  return infos;
}

std::shared_ptr<const TrainerSet> TrainerSetOf(const Job& job, uint32_t owner) {
  return MakeTrainerSet(job.spec, job.plan, owner, TrainerInfosOf(job));
}

std::shared_ptr<BucketBuffer> PackBucket(const Job& job, uint32_t trainer, uint32_t bucket,
                                         const Tensors& tensors, const MessageOptions& options) {
  BucketHeader header;
  int64_t payload = 0;
  std::vector<Place> places = PlacesOf(job, trainer, bucket, &payload);
  bool any = false;
  for (const Place& place : places) {
    any |= tensors.count(job.spec.parameters[job.plan.pieces[place.piece].parameter].name) != 0;
  }
  if (!any) payload = 0;
  header.kind = static_cast<uint8_t>(options.kind);
  header.flags = options.is_final ? kBucketFinal : 0;
  header.session = options.session;
  header.generation = options.generation;
  header.bucket = bucket;
  header.trainer = trainer;
  header.payload_bytes = static_cast<uint64_t>(payload);
  header.entries = static_cast<uint32_t>(places.size());

  auto entries = static_cast<int64_t>(places.size());
  auto message = std::make_shared<BucketBuffer>(BucketMessageBytes(entries, payload));
  std::memset(message->data(), 0, message->bytes());
  message->set_header(header);
  for (int64_t entry = 0; entry < entries; ++entry) {
    const Place& place = places[entry];
    const ParameterSpec& parameter = job.spec.parameters[job.plan.pieces[place.piece].parameter];
    auto values = tensors.find(parameter.name);
    if (values == tensors.end()) continue;
    SetPresent(message->presence(), entry);
    std::byte* at = message->payload(entries) + place.offset;
    for (int64_t element : place.elements) {
      StoreElement(parameter.dtype, values->second.at(element), at);
      at += SizeOf(parameter.dtype);
    }
  }
  return message;
}

void UnpackBucket(const Job& job, const BucketBuffer& message, Tensors* tensors) {
  BucketHeader header = message.header();
  int64_t payload = 0;
  std::vector<Place> places = PlacesOf(job, header.trainer, header.bucket, &payload);
  if (header.entries != places.size() || header.payload_bytes != static_cast<uint64_t>(payload)) {
    throw std::invalid_argument("a published message does not have its layout");
  }
  for (uint32_t entry = 0; entry < places.size(); ++entry) {
    const ParameterSpec& parameter =
        job.spec.parameters[job.plan.pieces[places[entry].piece].parameter];
    std::vector<float>& values = (*tensors)[parameter.name];
    values.resize(parameter.elements());
    const std::byte* at = message.payload(header.entries) + places[entry].offset;
    for (int64_t element : places[entry].elements) {
      values.at(element) = LoadElement(parameter.dtype, at);
      at += SizeOf(parameter.dtype);
    }
  }
}

}  // namespace dmuon::test
