// The Muon step on lanes of streams: directly the first time, as a graph from then on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/execution.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/lru_cache.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/plan_queue.h"
#include "kernels/cuda/step_block.h"
#include "kernels/device.h"

namespace dmuon::kernels::cuda {

class MuonSteps {
 public:
  // `stream` outlives this.
  MuonSteps(const CudaDeviceOptions& options, const Stream& stream);

  // Device::MuonStep, validated. Has finished on return.
  void Run(const MuonOptions& options, const MuonValues& values, const Shape& shape,
           const Execution& execution, std::span<const MuonMatrix> batch, std::span<bool> finite);

  // Why steps are not replayed as graphs; empty if they are.
  const std::string& graph_problem() const { return graph_problem_; }

 private:
  static constexpr int64_t kMaxRun = 64;  // matrices of one graph: larger batches run in parts
  static constexpr std::size_t kMaxPrograms = 32;

  // One part of a batch, on which its program depends; neither values nor pointers do.
  struct Part {
    const MuonOptions& options;
    Shape shape;
    int64_t count = 0;
    Execution execution;
  };
  struct Key {
    explicit Key(const Part& part);
    bool operator==(const Part& part) const;

    Shape shape;
    int64_t count = 0;
    bool nesterov = false;
    ElementType momentum_type = ElementType::kFloat32;
    NewtonSchulzOptions newton_schulz;
    Execution execution;
  };

  // Everything that a step of `count` matrices needs again and again.
  struct Program {
    Split split;
    std::vector<PlanQueue> full;  // per lane, for split.unit matrices
    std::vector<PlanQueue> rest;  // none or one: for the last unit, if it is smaller
    bool has_run = false;
    Graph graph;
  };

  Program& ProgramFor(const Part& part);
  void ReserveLanes(int lanes, int64_t bytes);
  void RunPart(const Part& part, const MuonFactors& factors, std::span<const MuonMatrix> batch,
               std::span<bool> finite);
  void Start(const Part& part, Program& program);
  void Queue(const Part& part, const Program& program) const;
  void QueueUnit(const Part& part, const StepOfMatrices& step, const PlanQueue& plan,
                 const Lane& lane) const;

  CudaDeviceOptions options_;
  const Stream& stream_;
  Event begin_;
  PinnedMemory host_block_;
  DeviceMemory device_block_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  LruCache<Key, Program> programs_{kMaxPrograms};  // refer to lanes and their workspaces
  std::string graph_problem_;
};

}  // namespace dmuon::kernels::cuda
