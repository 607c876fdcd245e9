#include "scheduler/owned_state.h"

#include <algorithm>
#include <cassert>

#include "scheduler/step_values.h"

namespace dmuon::scheduler {
namespace {

constexpr int64_t kAlignment = 64;  // of everything inside a slot's memory
constexpr StateTensor kMuonTensors[] = {StateTensor::kMaster, StateTensor::kMomentum};
constexpr StateTensor kAdamWTensors[] = {StateTensor::kMaster, StateTensor::kExpAvg,
                                         StateTensor::kExpAvgSq};

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t PositionOf(Rule rule, StateTensor tensor) {
  const std::span<const StateTensor> tensors = OwnedState::TensorsOf(rule);
  const auto found = std::find(tensors.begin(), tensors.end(), tensor);
  assert(found != tensors.end());
  return static_cast<size_t>(found - tensors.begin());
}

[[maybe_unused]] bool SameBatch(const Piece& a, const Piece& b) {
  return a.rule == b.rule && a.group == b.group && a.geometry.rows == b.geometry.rows &&
         a.geometry.cols == b.geometry.cols;
}

}  // namespace

std::span<const StateTensor> OwnedState::TensorsOf(Rule rule) {
  return rule == Rule::kMuon ? std::span<const StateTensor>(kMuonTensors)
                             : std::span<const StateTensor>(kAdamWTensors);
}

OwnedState::OwnedState(kernels::Device& device, const Plan& plan, uint32_t owner)
    : device_(device), plan_(plan), slot_of_(plan.pieces.size(), kNotOwned) {
  for (uint32_t piece = 0; piece < plan.pieces.size(); ++piece) {
    const std::vector<uint32_t>& owners = plan.pieces[piece].owners;
    if (std::find(owners.begin(), owners.end(), owner) != owners.end()) {
      slot_of_[piece] = static_cast<uint32_t>(pieces_.size());
      pieces_.push_back(piece);
    }
  }
  slots_.resize(pieces_.size());
  updated_.reserve(pieces_.size());
  matrices_.reserve(pieces_.size());
  for (const uint32_t piece : pieces_) {
    AllocateSlot(piece);
  }
}

void OwnedState::AllocateSlot(uint32_t piece) {
  const std::span<const StateTensor> tensors = TensorsOf(plan_.pieces[piece].rule);
  const int64_t gradient_bytes =
      Aligned(plan_.pieces[piece].geometry.elements() * int64_t{sizeof(float)});
  int64_t bytes = gradient_bytes;
  for (const StateTensor tensor : tensors) {
    bytes += 2 * Aligned(BytesOf(piece, tensor));
  }
  Slot& slot = SlotOf(piece);
  slot.memory = device_.Allocate(bytes);
  bytes_ += bytes;
  auto* next = static_cast<std::byte*>(slot.memory.data()) + gradient_bytes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (std::byte*& half : slot.tensors[i]) {
      half = next;
      next += Aligned(BytesOf(piece, tensors[i]));
    }
  }
}

DType OwnedState::TypeOf(uint32_t piece, StateTensor tensor) const {
  const bool narrow = tensor == StateTensor::kMomentum &&
                      plan_.pieces[piece].muon.momentum_type == kernels::ElementType::kBFloat16;
  return narrow ? DType::kBFloat16 : DType::kFloat32;
}

int64_t OwnedState::BytesOf(uint32_t piece, StateTensor tensor) const {
  return plan_.pieces[piece].geometry.elements() * SizeOf(TypeOf(piece, tensor));
}

std::byte* OwnedState::ActiveTensor(uint32_t piece, StateTensor tensor) const {
  const Slot& slot = SlotOf(piece);
  return slot.tensors[PositionOf(plan_.pieces[piece].rule, tensor)][slot.active];
}

float* OwnedState::gradient(uint32_t piece) { return SlotOf(piece).memory.floats(); }

const float* OwnedState::master(uint32_t piece) const {
  const Slot& slot = SlotOf(piece);
  return reinterpret_cast<const float*>(slot.tensors[0][slot.active]);
}

const float* OwnedState::updated_master(uint32_t piece) const {
  const Slot& slot = SlotOf(piece);
  assert(slot.updated);
  return reinterpret_cast<const float*>(slot.tensors[0][1 - slot.active]);
}

void OwnedState::SetMaster(uint32_t piece, const float* host) {
  CopyFromHost(piece, StateTensor::kMaster, host);
}

void OwnedState::CopyToHost(uint32_t piece, StateTensor tensor, void* host) const {
  device_.CopyToHost(host, ActiveTensor(piece, tensor), BytesOf(piece, tensor));
}

void OwnedState::CopyFromHost(uint32_t piece, StateTensor tensor, const void* host) {
  device_.CopyToDevice(ActiveTensor(piece, tensor), host, BytesOf(piece, tensor));
}

void OwnedState::MarkUpdated(uint32_t piece) {
  Slot& slot = SlotOf(piece);
  if (!slot.updated) {
    slot.updated = true;
    updated_.push_back(piece);
  }
}

void OwnedState::UpdateBatch(std::span<const uint32_t> batch, const kernels::MuonValues& values,
                             std::span<bool> finite) {
  assert(!batch.empty() && finite.size() == batch.size());
  const Piece& first = plan_.pieces[batch.front()];
  assert(first.rule == Rule::kMuon);
  matrices_.clear();
  for (const uint32_t piece : batch) {
    assert(SameBatch(first, plan_.pieces[piece]));
    Slot& slot = SlotOf(piece);
    const uint8_t active = slot.active;
    const uint8_t inactive = 1 - active;
    matrices_.push_back(
        {slot.memory.floats(), reinterpret_cast<const float*>(slot.tensors[0][active]),
         slot.tensors[1][active], reinterpret_cast<float*>(slot.tensors[0][inactive]),
         slot.tensors[1][inactive]});
    MarkUpdated(piece);
  }
  device_.MuonStep(first.muon, values, first.geometry.rows, first.geometry.cols, matrices_, finite);
}

bool OwnedState::UpdateElementwise(uint32_t piece, kernels::AdamWValues values) {
  assert(plan_.pieces[piece].rule == Rule::kAdamW);
  Slot& slot = SlotOf(piece);
  values.step = slot.step_count + 1;
  kernels::AdamWRange range;
  range.count = plan_.pieces[piece].geometry.elements();
  range.gradient = slot.memory.floats();
  const auto half = [&slot](size_t tensor, bool active) {
    return reinterpret_cast<float*>(slot.tensors[tensor][active ? slot.active : 1 - slot.active]);
  };
  range.master = half(0, true);
  range.exp_avg = half(1, true);
  range.exp_avg_sq = half(2, true);
  range.new_master = half(0, false);
  range.new_exp_avg = half(1, false);
  range.new_exp_avg_sq = half(2, false);
  MarkUpdated(piece);
  return device_.AdamWStep(values, range);
}

bool OwnedState::StaysFiniteAs(DType type, uint32_t piece) {
  constexpr uint16_t kExponent = 0x7c00;  // all ones: infinite or NaN
  if (type != DType::kFloat16) return true;
  const int64_t count = plan_.pieces[piece].geometry.elements();
  if (std::ssize(published_) < count) published_.resize(count);
  device_.Publish(kernels::ElementType::kFloat16, updated_master(piece), count, published_.data());
  return std::none_of(published_.begin(), published_.begin() + count,
                      [](uint16_t half) { return (half & kExponent) == kExponent; });
}

void OwnedState::Commit() {
  for (const uint32_t piece : updated_) {
    Slot& slot = SlotOf(piece);
    slot.active = 1 - slot.active;
    ++slot.step_count;
    slot.updated = false;
  }
  updated_.clear();
}

void OwnedState::Discard() {
  for (const uint32_t piece : updated_) {
    SlotOf(piece).updated = false;
  }
  updated_.clear();
}

}  // namespace dmuon::scheduler
