// What an owner keeps of the pieces that a plan gives it, and the update of one step: the code that
// replay and the owners both run.
//
// Every tensor of a piece exists twice, an active half that counts and an inactive half that the
// step in progress writes. Commit() swaps the halves of exactly the pieces that were updated;
// Discard() forgets the updates. Until one of them is called nothing that counts has changed.
//
// Pieces are named by their index in Plan::pieces. Used by one thread at a time. Allocates in the
// constructor and, for scratch, in StaysFiniteAs. No call fails on data; naming a piece of another
// owner is a programming error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "proto/session_spec.h"
#include "scheduler/plan.h"

namespace dmuon::scheduler {

// The tensors of a piece. A Muon piece has kMaster and kMomentum, an AdamW piece the other three.
enum class StateTensor { kMaster, kMomentum, kExpAvg, kExpAvgSq };

class OwnedState {
 public:
  // `device` and `plan` outlive the object. Everything starts as zeros. Throws std::bad_alloc.
  OwnedState(kernels::Device& device, const Plan& plan, uint32_t owner);

  std::span<const uint32_t> pieces() const { return pieces_; }  // ascending
  bool owns(uint32_t piece) const { return slot_of_[piece] != kNotOwned; }
  // Device bytes that are held.
  int64_t bytes() const { return bytes_; }

  // Device memory for the piece's reduced gradient, fp32, row-major; the caller fills it.
  float* gradient(uint32_t piece);
  // Device memory of the active master, fp32. Changes hands at Commit().
  const float* master(uint32_t piece) const;
  // Device memory of the master that Commit() would make active; only for a piece that was updated.
  const float* updated_master(uint32_t piece) const;
  // Copies `elements` fp32 host values into the active master.
  void SetMaster(uint32_t piece, const float* host);

  // One Muon step of pieces that are one batch, or part of one, of BatchesOf(). `finite` has one
  // entry for each: whether everything that was computed for it is finite.
  void UpdateBatch(std::span<const uint32_t> batch, const kernels::MuonValues& values,
                   std::span<bool> finite);
  // One AdamW step. `values.step` is filled in here. Returns whether all results are finite.
  bool UpdateElementwise(uint32_t piece, kernels::AdamWValues values);
  // Whether the updated master of a piece is still finite when it is published as `type`: fp16 ends
  // at 65,504. (fp32 is checked by the update, and bf16 reaches as far but for rounding.)
  bool StaysFiniteAs(DType type, uint32_t piece);

  void Commit();
  void Discard();

  // Export and import of the active half, row-major in the piece's own order.
  static std::span<const StateTensor> TensorsOf(Rule rule);
  // fp32 but for kMomentum, which has the type that the plan says.
  DType TypeOf(uint32_t piece, StateTensor tensor) const;
  void CopyToHost(uint32_t piece, StateTensor tensor, void* host) const;
  void CopyFromHost(uint32_t piece, StateTensor tensor, const void* host);
  // AdamW's t, and for a Muon piece as well the number of steps that updated it.
  int64_t step_count(uint32_t piece) const { return SlotOf(piece).step_count; }
  void SetStepCount(uint32_t piece, int64_t count) { SlotOf(piece).step_count = count; }

 private:
  static constexpr uint32_t kNotOwned = UINT32_MAX;
  static constexpr size_t kMaxTensors = 3;

  struct Slot {
    kernels::Buffer memory;                   // gradient, then the tensors' two halves each
    std::byte* tensors[kMaxTensors][2] = {};  // in the order of TensorsOf()
    int64_t step_count = 0;
    uint8_t active = 0;
    bool updated = false;
  };

  Slot& SlotOf(uint32_t piece) { return slots_[slot_of_[piece]]; }
  const Slot& SlotOf(uint32_t piece) const { return slots_[slot_of_[piece]]; }
  void AllocateSlot(uint32_t piece);
  int64_t BytesOf(uint32_t piece, StateTensor tensor) const;
  std::byte* ActiveTensor(uint32_t piece, StateTensor tensor) const;
  void MarkUpdated(uint32_t piece);

  kernels::Device& device_;
  const Plan& plan_;
  int64_t bytes_ = 0;
  std::vector<uint32_t> pieces_;
  std::vector<uint32_t> slot_of_;  // by piece of the plan
  std::vector<Slot> slots_;
  std::vector<uint32_t> updated_;              // pieces updated since Commit() or Discard()
  std::vector<kernels::MuonMatrix> matrices_;  // of the batch in hand
  std::vector<uint16_t> published_;            // scratch of StaysFiniteAs
};

}  // namespace dmuon::scheduler
