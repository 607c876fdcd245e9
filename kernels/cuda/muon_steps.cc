#include "kernels/cuda/muon_steps.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "kernels/cuda/check.h"

namespace dmuon::kernels::cuda {

MuonSteps::MuonSteps(const CudaDeviceOptions& options, const Stream& stream)
    : options_(options),
      stream_(stream),
      host_block_(StepBlockOf(kMaxRun).bytes),
      device_block_(StepBlockOf(kMaxRun).bytes) {
  if (!options.graphs) {
    graph_problem_ = "switched off";
  }
}

MuonSteps::Key::Key(const Part& part)
    : shape(part.shape),
      count(part.count),
      nesterov(part.options.nesterov),
      momentum_type(part.options.momentum_type),
      newton_schulz(part.options.newton_schulz),
      execution(part.execution) {}

bool MuonSteps::Key::operator==(const Part& part) const {
  return shape == part.shape && count == part.count && nesterov == part.options.nesterov &&
         momentum_type == part.options.momentum_type && execution == part.execution &&
         newton_schulz == part.options.newton_schulz;
}

void MuonSteps::Run(const MuonOptions& options, const MuonValues& values, const Shape& shape,
                    const Execution& execution, std::span<const MuonMatrix> batch,
                    std::span<bool> finite) {
  const MuonFactors factors = MuonFactorsOf(options, values, shape.rows, shape.cols);
  const int64_t count = std::ssize(batch);
  for (int64_t i = 0; i < CeilDivide(count, kMaxRun); ++i) {
    const Range range = PieceRange(i, kMaxRun, count);
    RunPart({options, shape, range.size(), execution}, factors,
            batch.subspan(range.begin, range.size()), finite.subspan(range.begin, range.size()));
  }
}

void MuonSteps::RunPart(const Part& part, const MuonFactors& factors,
                        std::span<const MuonMatrix> batch, std::span<bool> finite) {
  Program& program = ProgramFor(part);
  const StepBlock block = StepBlockOf(part.count);
  char* host = host_block_.data();
  std::memcpy(host, &factors, sizeof(factors));
  std::memcpy(host + block.matrices, batch.data(), batch.size_bytes());
  auto* flags = reinterpret_cast<int*>(host + block.flags);
  std::fill_n(flags, part.count, 0);
  DMUON_CUDA_CHECK(cudaMemcpyAsync(device_block_.data(), host, block.bytes, cudaMemcpyHostToDevice,
                                   stream_.get()));
  Start(part, program);
  DMUON_CUDA_CHECK(cudaMemcpyAsync(flags, static_cast<char*>(device_block_.data()) + block.flags,
                                   part.count * int64_t{sizeof(int)}, cudaMemcpyDeviceToHost,
                                   stream_.get()));
  stream_.Synchronize();
  std::transform(flags, flags + part.count, finite.begin(), [](int flag) { return flag == 0; });
}

// The first run may load and set up what must not happen during a capture.
void MuonSteps::Start(const Part& part, Program& program) {
  if (program.has_run && program.graph.empty() && graph_problem_.empty()) {
    try {
      program.graph = Graph::Capture(stream_, [&] { Queue(part, program); });
    } catch (const std::exception& error) {
      graph_problem_ = error.what();  // the direct way gives the same bits
    }
  }
  if (program.graph.empty()) {
    Queue(part, program);
  } else {
    program.graph.Launch(stream_);
  }
  program.has_run = true;
}

void MuonSteps::Queue(const Part& part, const Program& program) const {
  const StepBlock block = StepBlockOf(part.count);
  char* device = static_cast<char*>(device_block_.data());
  const StepOfMatrices step{reinterpret_cast<const MuonFactors*>(device),
                            reinterpret_cast<const MuonMatrix*>(device + block.matrices),
                            reinterpret_cast<int*>(device + block.flags), part.count};
  const Split& split = program.split;
  begin_.Record(stream_);
  for (int i = 0; i < split.lanes; ++i) {
    begin_.Delay(lanes_[i]->stream);
  }
  for (int64_t unit = 0; unit < split.Units(part.count); ++unit) {
    const auto lane = static_cast<std::size_t>(unit % split.lanes);
    const Range range = split.UnitRange(unit, part.count);
    const PlanQueue& plan = range.size() == split.unit ? program.full[lane] : program.rest.front();
    QueueUnit(
        part,
        {step.factors, step.matrices + range.begin, step.not_finite + range.begin, range.size()},
        plan, *lanes_[lane]);
  }
  for (int i = 0; i < split.lanes; ++i) {
    lanes_[i]->done.Record(lanes_[i]->stream);
    lanes_[i]->done.Delay(stream_);
  }
}

void MuonSteps::QueueUnit(const Part& part, const StepOfMatrices& step, const PlanQueue& plan,
                          const Lane& lane) const {
  const MuonOptions& options = part.options;
  const Shape& shape = part.shape;
  const NewtonSchulzPlan& places = plan.plan();
  const cudaStream_t stream = lane.stream.get();
  auto* u = static_cast<float*>(plan.At(places.spare.offset));
  auto* block_sums = static_cast<double*>(plan.At(places.block_sums));
  LaunchMomentum(stream, step, options, shape.count(), u, places.spare.stride, block_sums);
  LaunchNormalize(stream, step, options.newton_schulz, shape, u, places.spare.stride, block_sums,
                  static_cast<NormalizeFactors*>(plan.At(places.normalizers)),
                  plan.PointerTo(places.x));
  plan.Queue();
  LaunchUpdate(stream, step, shape, plan.PointerTo(places.result));
}

MuonSteps::Program& MuonSteps::ProgramFor(const Part& part) {
  if (Program* known = programs_.Find(part)) {
    return *known;
  }
  const auto plan_of = [&](int64_t matrices) {
    return MakePlan(part.options.newton_schulz, part.shape, matrices, part.execution.tile_side);
  };
  Program program;
  program.split = SplitOf(part.execution, part.count, plan_of(1).bytes, options_.workspace_bytes);
  const NewtonSchulzPlan plan = plan_of(program.split.unit);
  ReserveLanes(program.split.lanes, plan.bytes);
  for (int i = 0; i < program.split.lanes; ++i) {
    program.full.emplace_back(plan, *lanes_[i]);
  }
  if (const int64_t rest = part.count % program.split.unit; rest != 0) {
    const int64_t last = program.split.Units(part.count) - 1;
    program.rest.emplace_back(plan_of(rest), *lanes_[last % program.split.lanes]);
  }
  return programs_.Insert(Key(part), std::move(program));
}

// Programs know where workspaces are: they go when one moves.
void MuonSteps::ReserveLanes(int lanes, int64_t bytes) {
  while (std::ssize(lanes_) < lanes) {
    lanes_.push_back(std::make_unique<Lane>());
  }
  for (int i = 0; i < lanes; ++i) {
    DeviceMemory& workspace = lanes_[i]->workspace;
    if (workspace.bytes() < bytes) {
      programs_.Clear();
      workspace = DeviceMemory();
      workspace = DeviceMemory(bytes);
    }
  }
}

}  // namespace dmuon::kernels::cuda
