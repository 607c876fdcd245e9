#include "tests/kernels/backends.h"

#include <algorithm>
#include <exception>

namespace dmuon::kernels::testing {
namespace {

// Momentum as bytes of the device's momentum type; bf16 values must be exact.
std::vector<uint8_t> EncodeMomentum(const std::vector<float>& values, ElementType type) {
  std::vector<uint8_t> bytes(values.size() * SizeOf(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    uint8_t raw[sizeof(float)];
    std::copy_n(reinterpret_cast<const uint8_t*>(&values[i]), sizeof(float), raw);
    const int skip = type == ElementType::kBFloat16 ? 2 : 0;  // the upper half of fp32
    std::copy_n(raw + skip, SizeOf(type), bytes.begin() + i * SizeOf(type));
  }
  return bytes;
}

Matrix DecodeMomentum(int64_t rows, int64_t cols, const std::vector<uint8_t>& bytes,
                      ElementType type) {
  Matrix result(rows, cols);
  for (std::size_t i = 0; i < result.values.size(); ++i) {
    uint8_t raw[sizeof(float)] = {};
    const int skip = type == ElementType::kBFloat16 ? 2 : 0;
    std::copy_n(bytes.begin() + i * SizeOf(type), SizeOf(type), raw + skip);
    float value = 0;
    std::copy_n(raw, sizeof(float), reinterpret_cast<uint8_t*>(&value));
    result.values[i] = value;
  }
  return result;
}

// Device memory of one matrix through one step.
struct Resident {
  std::vector<float> gradient;
  std::vector<float> master;
  std::vector<uint8_t> momentum;
  Buffer device_gradient;
  Buffer device_master;
  Buffer device_momentum;
  Buffer new_master;
  Buffer new_momentum;
};

std::vector<float> ValuesOrZeros(const Matrix& a, std::size_t count) {
  return a.values.empty() ? std::vector<float>(count) : ToFloats(a);
}

Resident MakeResident(Device& device, const MuonInput& input, ElementType momentum_type) {
  Resident r;
  r.gradient = ToFloats(input.gradient);
  r.master = ValuesOrZeros(input.master, r.gradient.size());
  r.momentum = EncodeMomentum(ValuesOrZeros(input.momentum, r.gradient.size()), momentum_type);
  r.device_gradient = Upload(device, r.gradient);
  r.device_master = Upload(device, r.master);
  r.device_momentum = device.Allocate(std::ssize(r.momentum));
  device.CopyToDevice(r.device_momentum.data(), r.momentum.data(), std::ssize(r.momentum));
  r.new_master = device.Allocate(r.device_master.bytes());
  r.new_momentum = device.Allocate(r.device_momentum.bytes());
  return r;
}

std::vector<uint8_t> DownloadBytes(Device& device, const Buffer& buffer) {
  std::vector<uint8_t> bytes(buffer.bytes());
  device.CopyToHost(bytes.data(), buffer.data(), buffer.bytes());
  return bytes;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(reinterpret_cast<const uint32_t*>(a.data()),
                                            reinterpret_cast<const uint32_t*>(a.data() + a.size()),
                                            reinterpret_cast<const uint32_t*>(b.data()));
}

void ExpectInputsUnchanged(Device& device, const Resident& r) {
  const int64_t count = std::ssize(r.gradient);
  EXPECT_TRUE(SameBits(Download(device, r.device_gradient.floats(), count), r.gradient));
  EXPECT_TRUE(SameBits(Download(device, r.device_master.floats(), count), r.master));
  EXPECT_EQ(DownloadBytes(device, r.device_momentum), r.momentum);
}

}  // namespace

const std::vector<Backend>& Backends() {
  static const std::vector<Backend> all = {
      {"cpu_1_thread", !BuiltWithCpuBackend(), [] { return MakeCpuDevice({1}); }},
      {"cpu_3_threads", !BuiltWithCpuBackend(), [] { return MakeCpuDevice({3}); }},
      {"cuda", true, [] { return MakeCudaDevice({}); }},
      // Small tiles, so that small matrices have triangles of them, and little workspace.
      {"cuda_tiles", true,
       [] { return MakeCudaDevice({.tile_side = 16, .workspace_bytes = 1 << 20}); }},
      {"cuda_batched", true,
       [] { return MakeCudaDevice({.deterministic = false, .tile_side = 32}); }, true}};
  return all;
}

bool BuiltWithCpuBackend() {
#if defined(DMUON_TEST_HAVE_CPU)
  return true;
#else
  return false;
#endif
}

void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

void BackendTest::SetUp() {
  try {
    device_ = GetParam().make();
  } catch (const std::exception& error) {
    if (!GetParam().may_be_missing) {
      FAIL() << GetParam().name << ": " << error.what();
    }
    GTEST_SKIP() << GetParam().name << ": " << error.what();
  }
}

std::string BackendName(const ::testing::TestParamInfo<Backend>& info) { return info.param.name; }

std::vector<MuonOutput> RunMuonStep(Device& device, const MuonOptions& options,
                                    const MuonValues& values, const std::vector<MuonInput>& batch) {
  const int64_t rows = batch[0].gradient.rows;
  const int64_t cols = batch[0].gradient.cols;
  std::vector<Resident> resident;
  std::vector<MuonMatrix> matrices;
  for (const MuonInput& input : batch) {
    const Resident& r = resident.emplace_back(MakeResident(device, input, options.momentum_type));
    matrices.push_back({r.device_gradient.floats(), r.device_master.floats(),
                        r.device_momentum.data(), r.new_master.floats(), r.new_momentum.data()});
  }
  const auto finite = std::make_unique<bool[]>(batch.size());
  device.MuonStep(options, values, rows, cols, matrices, {finite.get(), batch.size()});
  std::vector<MuonOutput> outputs;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Resident& r = resident[i];
    ExpectInputsUnchanged(device, r);
    MuonOutput& output = outputs.emplace_back();
    output.master =
        FromFloats(rows, cols, Download(device, r.new_master.floats(), rows * cols).data());
    output.momentum =
        DecodeMomentum(rows, cols, DownloadBytes(device, r.new_momentum), options.momentum_type);
    output.finite = finite[i];
  }
  return outputs;
}

std::vector<Matrix> RunNewtonSchulz(Device& device, const NewtonSchulzOptions& options,
                                    const std::vector<Matrix>& batch) {
  MuonOptions muon;
  muon.scale = UpdateScale::kNone;
  muon.newton_schulz = options;
  MuonValues values;
  values.lr = 1.0;
  std::vector<MuonInput> inputs;
  for (const Matrix& u : batch) {
    inputs.push_back({u, {}, {}});
  }
  std::vector<Matrix> results;
  for (const MuonOutput& output : RunMuonStep(device, muon, values, inputs)) {
    EXPECT_TRUE(output.finite);
    results.push_back(Scaled(output.master, -1.0));
  }
  return results;
}

Matrix RunNewtonSchulz(Device& device, const NewtonSchulzOptions& options, const Matrix& u) {
  return RunNewtonSchulz(device, options, std::vector<Matrix>{u})[0];
}

Buffer Upload(Device& device, const std::vector<float>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  Buffer buffer = device.Allocate(bytes);
  device.CopyToDevice(buffer.data(), values.data(), bytes);
  return buffer;
}

std::vector<float> Download(Device& device, const float* data, int64_t count) {
  std::vector<float> values(count);
  device.CopyToHost(values.data(), data, count * static_cast<int64_t>(sizeof(float)));
  return values;
}

NewtonSchulzOptions PlainOptions(const Coefficients& coefficients) {
  NewtonSchulzOptions options;
  options.coefficients = coefficients;
  return options;
}

}  // namespace dmuon::kernels::testing
