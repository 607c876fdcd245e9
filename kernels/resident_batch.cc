#include "kernels/resident_batch.h"

#include <algorithm>
#include <cstring>

namespace dmuon::kernels {
namespace {

// Gradient, master, momentum, and the latter two after the step.
constexpr int64_t kTensors = 5;

}  // namespace

ResidentBatch::ResidentBatch(Device& device, const MuonOptions& options, int64_t rows, int64_t cols,
                             int64_t batch)
    : device_(device),
      options_(options),
      rows_(rows),
      cols_(cols),
      finite_(std::make_unique<bool[]>(batch)) {
  for (int64_t i = 0; i < batch; ++i) {
    const std::size_t first = buffers_.size();
    for (int64_t tensor = 0; tensor < kTensors; ++tensor) {
      buffers_.push_back(device.Allocate(BytesFor(rows, cols, 1) / kTensors));
    }
    matrices_.push_back({buffers_[first].floats(), buffers_[first + 1].floats(),
                         buffers_[first + 2].data(), buffers_[first + 3].floats(),
                         buffers_[first + 4].data()});
  }
}

int64_t ResidentBatch::BytesFor(int64_t rows, int64_t cols, int64_t batch) {
  return batch * kTensors * rows * cols * SizeOf(ElementType::kFloat32);
}

void ResidentBatch::SetGradient(int64_t matrix, std::span<const float> values) {
  device_.CopyToDevice(buffers_[matrix * kTensors].data(), values.data(),
                       static_cast<int64_t>(values.size_bytes()));
}

bool ResidentBatch::Step(const MuonValues& values) {
  const std::span<bool> finite(finite_.get(), matrices_.size());
  device_.MuonStep(options_, values, rows_, cols_, matrices_, finite);
  return std::all_of(finite.begin(), finite.end(), [](bool is_finite) { return is_finite; });
}

std::vector<float> ResidentBatch::Result(int64_t matrix) {
  std::vector<float> values(rows_ * cols_);
  device_.CopyToHost(values.data(), matrices_[matrix].new_master,
                     std::ssize(values) * SizeOf(ElementType::kFloat32));
  return values;
}

uint64_t ResidentBatch::Fingerprint() {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15U;  // odd: no word is lost
  uint64_t fingerprint = 0;
  std::vector<uint32_t> words(rows_ * cols_);
  for (const MuonMatrix& matrix : matrices_) {
    for (const void* written : {static_cast<const void*>(matrix.new_master),
                                static_cast<const void*>(matrix.new_momentum)}) {
      device_.CopyToHost(words.data(), written, std::ssize(words) * int64_t{sizeof(uint32_t)});
      for (const uint32_t word : words) {
        fingerprint = (fingerprint ^ word) * kMultiplier;
        fingerprint ^= fingerprint >> 32;
      }
    }
  }
  return fingerprint;
}

}  // namespace dmuon::kernels
