// Queues a plan's calls on one stream.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/plan.h"

namespace dmuon::kernels::cuda {

// One stream with what work on it needs. The workspace stays where it is until it is replaced.
struct Lane {
  Stream stream;
  CublasHandle cublas{stream};
  Event done;
  DeviceMemory workspace;
};

// A plan on a lane's workspace, with everything that its calls need in place: queueing it allocates
// nothing and copies nothing from the host, so it may be captured into a graph. The arrays of the
// host that cuBLAS reads live as long as this. Move-only.
class PlanQueue {
 public:
  // `lane` must outlive this and keep its workspace, of at least plan.bytes.
  PlanQueue(NewtonSchulzPlan plan, const Lane& lane);

  const NewtonSchulzPlan& plan() const { return plan_; }
  void* At(int64_t offset) const;
  ArrayPointer PointerTo(const Array& array) const;

  // The iteration: consumes plan().x, leaves its result at plan().result.
  void Queue() const;

 private:
  // A triangle product as cuBLAS takes it: the pointers are in device memory.
  struct Grouped {
    GroupArrays arrays;
    std::vector<cublasOperation_t> first_operations;
    std::vector<cublasOperation_t> second_operations;
    const void** first = nullptr;
    const void** second = nullptr;
    void** out = nullptr;
  };

  void PreparePointers();
  void Run(const WholeProduct& product) const;
  void Run(const TriangleProduct& product, const Grouped& grouped) const;
  void RunGroups(const TriangleProduct& product, const Grouped& grouped) const;

  NewtonSchulzPlan plan_;
  const Lane* lane_;
  DeviceMemory pointers_;
  std::vector<Grouped> grouped_;  // of the plan's triangle products, in order
};

}  // namespace dmuon::kernels::cuda
