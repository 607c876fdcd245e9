#include "tests/bench/muon_pass_case.h"

#include <algorithm>
#include <span>
#include <stdexcept>

#include "kernels/cpu/muon_passes.h"
#include "kernels/cpu/panel_newton_schulz.h"

namespace dmuon::kernels::testing {
namespace {

constexpr int64_t kRows = 2048;
constexpr int kTensors = 5;  // gradient, master, momentum, and both of the next step

MuonValues Values() {
  MuonValues values;
  values.lr = 0.02;
  values.momentum = 0.95;
  return values;
}

int64_t ColsOf(int64_t array_bytes) {
  const int64_t cols = array_bytes / kRows / static_cast<int64_t>(sizeof(float));
  if (cols < kRows) {
    throw std::invalid_argument("the matrix of a Muon pass needs 16 MiB or more");
  }
  return cols;
}

}  // namespace

struct MuonPassCase::State {
  MuonPass pass;
  int64_t cols;
  ThreadPool pool;
  MuonOptions options;
  MuonFactors factors = MuonFactorsOf(options, Values(), kRows, cols);
  MuonPasses<PanelNewtonSchulz> passes{pool, options, factors, kRows, cols};
  std::vector<Buffer> buffers;
  MuonMatrix matrix;
  Workspace workspace;
  PanelRunner runner{pool};
  std::unique_ptr<PanelNewtonSchulz> iteration;
  std::vector<double> sums = std::vector<double>(passes.blocks());
  std::vector<uint8_t> bad = std::vector<uint8_t>(std::max(passes.blocks(), passes.strips()));

  State(Device& device, MuonPass given, int64_t array_bytes, int threads)
      : pass(given), cols(ColsOf(array_bytes)), pool(threads) {
    for (int i = 0; i < kTensors; ++i) {
      buffers.push_back(device.Allocate(kRows * cols * static_cast<int64_t>(sizeof(float))));
    }
    float* gradient = buffers[0].floats();
    for (int64_t i = 0; i < kRows * cols; ++i) {
      gradient[i] = static_cast<float>((i * 37) % 101 - 50) / 64.0F;
    }
    matrix = {gradient, buffers[1].floats(), buffers[2].data(), buffers[3].floats(),
              buffers[4].data()};
    const NewtonSchulzStorage storage = StorageOf(options.newton_schulz);
    workspace.Reset(PanelNewtonSchulz::BytesPerMatrix(Form::kDirect, storage, kRows, cols));
    iteration = std::make_unique<PanelNewtonSchulz>(runner, workspace, Form::kDirect, storage,
                                                    kRows, cols, 1);
    RunPass(MuonPass::kMomentum);
    RunPass(MuonPass::kNormalize);
  }

  void RunPass(MuonPass which) {
    const std::span<const MuonMatrix> part(&matrix, 1);
    switch (which) {
      case MuonPass::kMomentum:
        return passes.ApplyMomentum(part, iteration->spare(), sums.data(), bad.data());
      case MuonPass::kNormalize:
        return passes.Normalize(iteration->spare(), sums.data(), 1, *iteration, bad.data());
      case MuonPass::kUpdate:
        return passes.Update(part, *iteration, bad.data());
    }
  }
};

MuonPassCase::MuonPassCase(Device& device, MuonPass pass, int64_t array_bytes, int threads)
    : state_(std::make_unique<State>(device, pass, array_bytes, threads)) {}

MuonPassCase::~MuonPassCase() = default;

void MuonPassCase::Run() {
  state_->RunPass(state_->pass);
  if (std::any_of(state_->bad.begin(), state_->bad.end(), [](uint8_t bad) { return bad != 0; })) {
    throw std::runtime_error("a measured pass is not finite");
  }
}

int64_t MuonPassCase::bytes() const {
  const int64_t arrays = state_->pass == MuonPass::kMomentum ? 4 : 3;
  return arrays * kRows * state_->cols * static_cast<int64_t>(sizeof(float));
}

}  // namespace dmuon::kernels::testing
