#include "daemon/owner/step_worker.h"

#include <algorithm>
#include <cstring>

namespace dmuon {
namespace {

using scheduler::ElementTypeOf;

// Where a segment's elements lie in a trainer's message; null without one.
const std::byte* Locate(const TrainerSet& trainers, const PiecePlace& place,
                        const SegmentSource& source, int64_t element_size,
                        const Contributions& contributions) {
  const BucketPtr& message = contributions[source.trainer];
  if (!message) return nullptr;
  const LayoutBucket& bucket = trainers.trainers[source.trainer].layout.buckets[place.bucket];
  return message->payload(static_cast<int64_t>(bucket.entries.size())) +
         bucket.entries[place.entry].offset + source.packed * element_size;
}

}  // namespace

StepWorker::StepWorker(kernels::Device& device, BucketPool& pool, const SessionSpec& spec,
                       const scheduler::Plan& plan, uint32_t owner)
    : device_(device), pool_(pool), spec_(spec), plan_(plan), state_(device, plan, owner) {}

const ParameterSpec& StepWorker::ParameterOf(uint32_t piece) const {
  return spec_.parameters[plan_.pieces[piece].parameter];
}

std::string StepWorker::TakeInitialValues(const TrainerSet& trainers, uint32_t piece,
                                          const Contributions& contributions) {
  const ParameterSpec& parameter = ParameterOf(piece);
  const PiecePlace& place = trainers.places.at(piece);
  int64_t element_size = SizeOf(parameter.dtype);
  float* values = state_.gradient(piece);
  for (const Segment& segment : trainers.segments.at(piece)) {
    const SegmentSource& first = segment.sources.front();
    const std::byte* data = Locate(trainers, place, first, element_size, contributions);
    for (const SegmentSource& source : segment.sources) {
      const std::byte* other = Locate(trainers, place, source, element_size, contributions);
      if (data == nullptr || other == nullptr) {
        return "trainer " + std::to_string(data == nullptr ? first.trainer : source.trainer) +
               " pushed no initial value of parameter " + parameter.name;
      }
      if (std::memcmp(data, other, segment.length * element_size) != 0) {
        return "the initial value of parameter " + parameter.name + " differs between trainers " +
               std::to_string(first.trainer) + " and " + std::to_string(source.trainer) +
               ": give every trainer the same weights (same seed or checkpoint) before it attaches";
      }
    }
    kernels::ReduceSource source{data};
    device_.Reduce(ElementTypeOf(parameter.dtype), {&source, 1}, segment.length, 1.0F,
                   values + segment.begin);
  }
  int64_t count = plan_.pieces[piece].geometry.elements();
  if (!device_.MeasureNorm(values, count).finite) {
    return "the initial value of parameter " + parameter.name +
           " is not finite: check the model's initialisation or checkpoint";
  }
  std::vector<float> host(count);
  device_.CopyToHost(host.data(), values, count * static_cast<int64_t>(sizeof(float)));
  state_.SetMaster(piece, host.data());
  return {};
}

kernels::NormAndFinite StepWorker::Reduce(const TrainerSet& trainers, uint32_t piece,
                                          const Contributions& contributions,
                                          const scheduler::StepValues& values) {
  for (const Segment& segment : trainers.segments.at(piece)) {
    ReduceSegment(trainers, piece, segment, contributions, values.grad_scale());
  }
  return device_.MeasureNorm(state_.gradient(piece), plan_.pieces[piece].geometry.elements());
}

void StepWorker::ReduceSegment(const TrainerSet& trainers, uint32_t piece, const Segment& segment,
                               const Contributions& contributions, double grad_scale) {
  const ParameterSpec& parameter = ParameterOf(piece);
  const PiecePlace& place = trainers.places.at(piece);
  std::vector<const void*> data(trainers.trainers.size(), nullptr);
  for (const SegmentSource& source : segment.sources) {
    data[source.trainer] = Locate(trainers, place, source, SizeOf(parameter.dtype), contributions);
  }
  float* destination = state_.gradient(piece) + segment.begin;
  kernels::ElementType type = ElementTypeOf(parameter.dtype);

  if (trainers.contribution(plan_.pieces[piece].parameter) == Contribution::kReplica) {
    auto copy = std::find_if(data.begin(), data.end(), [](const void* p) { return p != nullptr; });
    kernels::ReduceSource source{copy == data.end() ? nullptr : *copy};
    device_.Reduce(type, {&source, 1}, segment.length,
                   scheduler::ReductionFactor(spec_.reduce, 1, grad_scale), destination);
    return;
  }
  float factor = scheduler::ReductionFactor(
      spec_.reduce, static_cast<int64_t>(trainers.trainers.size()), grad_scale);
  if (trainers.groups.size() > 1) {
    ReduceOverNodes(trainers, segment, data, parameter.dtype, factor, destination);
  } else {
    std::vector<kernels::ReduceSource> sources;
    for (const SegmentSource& source : segment.sources) sources.push_back({data[source.trainer]});
    device_.Reduce(type, sources, segment.length, factor, destination);
  }
}

void StepWorker::ReduceOverNodes(const TrainerSet& trainers, const Segment& segment,
                                 const std::vector<const void*>& data, DType dtype, float factor,
                                 float* destination) {
  std::vector<kernels::ReduceSource> nodes;
  node_sums_.resize(trainers.groups.size());
  for (size_t node = 0; node < trainers.groups.size(); ++node) {
    std::vector<kernels::ReduceSource> sources;
    bool any = false;
    for (uint32_t trainer : trainers.groups[node]) {
      auto holds = [&](const SegmentSource& s) { return s.trainer == trainer; };
      if (std::none_of(segment.sources.begin(), segment.sources.end(), holds)) continue;
      sources.push_back({data[trainer]});
      any |= data[trainer] != nullptr;
    }
    if (sources.empty()) continue;
    if (!any) {
      nodes.push_back({nullptr});
      continue;
    }
    // The node's sum leaves it in fp32; unscaled, so that scaling happens once.
    device_.Reduce(ElementTypeOf(dtype), sources, segment.length, 1.0F, destination);
    node_sums_[node].resize(segment.length);
    device_.CopyToHost(node_sums_[node].data(), destination,
                       segment.length * static_cast<int64_t>(sizeof(float)));
    nodes.push_back({node_sums_[node].data()});
  }
  device_.Reduce(kernels::ElementType::kFloat32, nodes, segment.length, factor, destination);
}

std::vector<bool> StepWorker::Update(const std::vector<uint32_t>& pieces,
                                     const scheduler::StepValues& values, double clip_factor) {
  const scheduler::Piece& first = plan_.pieces[pieces.front()];
  int group = spec_.parameters[first.parameter].group;
  std::vector<bool> finite;
  if (first.rule == Rule::kMuon) {
    auto flags = std::make_unique<bool[]>(pieces.size());
    state_.UpdateBatch(pieces, values.Muon(group, clip_factor), {flags.get(), pieces.size()});
    finite.assign(flags.get(), flags.get() + pieces.size());
  } else {
    for (uint32_t piece : pieces) {
      finite.push_back(state_.UpdateElementwise(piece, values.AdamW(group, clip_factor)));
    }
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    finite[i] = finite[i] && state_.StaysFiniteAs(ParameterOf(pieces[i]).dtype, pieces[i]);
  }
  return finite;
}

std::vector<PublishedBucket> StepWorker::Publish(const TrainerSet& trainers,
                                                 const std::vector<uint32_t>& receivers,
                                                 uint32_t bucket, uint64_t session,
                                                 uint64_t generation) {
  BucketHeader header;
  header.kind = static_cast<uint8_t>(BucketKind::kPublished);
  header.flags = kBucketFinal;
  header.session = session;
  header.generation = generation;
  header.bucket = bucket;
  header.entries = static_cast<uint32_t>(plan_.buckets[bucket].pieces.size());

  std::vector<std::shared_ptr<BucketBuffer>> messages(trainers.trainers.size());
  for (uint32_t trainer : receivers) {
    const LayoutBucket& layout = trainers.trainers[trainer].layout.buckets[bucket];
    if (layout.payload_bytes == 0) continue;
    header.trainer = trainer;
    header.payload_bytes = layout.payload_bytes;
    messages[trainer] = pool_.Take(BucketMessageBytes(header.entries, layout.payload_bytes));
    messages[trainer]->set_header(header);
    // Also the payload, for its padding: no byte leaves that was not meant to.
    std::memset(messages[trainer]->presence(), 0,
                PresenceBytes(header.entries) + layout.payload_bytes);
  }
  for (uint32_t entry = 0; entry < header.entries; ++entry) {
    uint32_t piece = plan_.buckets[bucket].pieces[entry];
    DType dtype = ParameterOf(piece).dtype;
    int64_t size = SizeOf(dtype);
    int64_t count = plan_.pieces[piece].geometry.elements();
    if (static_cast<int64_t>(published_.size()) < count * size) published_.resize(count * size);
    device_.Publish(ElementTypeOf(dtype), state_.master(piece), count, published_.data());
    for (const Segment& segment : trainers.segments.at(piece)) {
      for (const SegmentSource& source : segment.sources) {
        BucketBuffer* message = messages[source.trainer].get();
        if (message == nullptr) continue;
        SetPresent(message->presence(), entry);
        const LayoutBucket& layout = trainers.trainers[source.trainer].layout.buckets[bucket];
        std::memcpy(
            message->payload(header.entries) + layout.entries[entry].offset + source.packed * size,
            published_.data() + segment.begin * size, segment.length * size);
      }
    }
  }
  std::vector<PublishedBucket> published;
  for (uint32_t trainer : receivers) {
    if (messages[trainer]) published.push_back({trainer, std::move(messages[trainer])});
  }
  return published;
}

}  // namespace dmuon
