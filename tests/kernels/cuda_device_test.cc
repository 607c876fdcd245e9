// What only the CUDA backend promises, and builds without it.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/inputs.h"

namespace dmuon::kernels::testing {
namespace {

// Never a crash: one line that names the device and the reason.
TEST(CudaDevice, SaysWhyThereIsNone) {
  try {
    MakeCudaDevice({.ordinal = 9999});
    FAIL() << "made a device that cannot exist";
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.rfind("cuda:9999: ", 0), 0U) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos);
#if defined(DMUON_TEST_HAVE_CUDA)
    EXPECT_NE(what.find("no CUDA device"), std::string::npos) << what;
#else
    EXPECT_NE(what.find("no CUDA backend"), std::string::npos) << what;
    EXPECT_NE(what.find("DMUON_CUDA=ON"), std::string::npos) << what;
#endif
  }
}

TEST(CudaDevice, RefusesATileThatTensorCoresCannotTake) {
#if defined(DMUON_TEST_HAVE_CUDA)
  EXPECT_THROW(MakeCudaDevice({.tile_side = 24}), std::invalid_argument);
#else
  GTEST_SKIP() << "this build has no CUDA backend";
#endif
}

// Null and a skipped test without a GPU.
std::unique_ptr<Device> DeviceOrSkip(const CudaDeviceOptions& options) {
  try {
    return MakeCudaDevice(options);
  } catch (const std::runtime_error& error) {
    [&] { GTEST_SKIP() << error.what(); }();
    return nullptr;
  }
}

std::vector<Matrix> Batch(int64_t count, int64_t rows, int64_t cols, uint64_t seed) {
  std::vector<Matrix> batch;
  for (int64_t i = 0; i < count; ++i) {
    batch.push_back(MakeInput(InputClass::kGaussian, rows, cols, seed + i));
  }
  return batch;
}

// The first step runs directly, the second is captured, the third replayed: with other matrices and
// in other memory each time.
TEST(CudaDevice, ReplayedStepsGiveTheBitsOfDirectOnes) {
  const std::unique_ptr<Device> direct = DeviceOrSkip({.graphs = false, .tile_side = 16});
  if (direct == nullptr) {
    return;
  }
  const std::unique_ptr<Device> replaying = MakeCudaDevice({.tile_side = 16});
  NewtonSchulzOptions options = PlainOptions(PolarExpress());
  for (const ElementType precision :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    for (const Form form : {Form::kDirect, Form::kGram}) {
      options.precision = precision;
      options.form = form;
      options.restart = {2};
      for (uint64_t step = 0; step < 4; ++step) {
        const std::vector<Matrix> batch = Batch(9, 56, 130, 100 * step);
        const std::vector<Matrix> expected = RunNewtonSchulz(*direct, options, batch);
        const std::vector<Matrix> results = RunNewtonSchulz(*replaying, options, batch);
        for (std::size_t i = 0; i < batch.size(); ++i) {
          EXPECT_EQ(results[i].values, expected[i].values)
              << NameOf(precision) << " " << NameOf(form) << ", step " << step << ", matrix " << i;
        }
      }
    }
  }
  // Otherwise nothing was replayed.
  EXPECT_EQ(replaying->Describe().find("no graphs"), std::string::npos) << replaying->Describe();
}

// A larger shape moves the workspaces that the smaller one's graphs know.
TEST(CudaDevice, GraphsSurviveAGrowingWorkspace) {
  const std::unique_ptr<Device> device = DeviceOrSkip({});
  if (device == nullptr) {
    return;
  }
  const NewtonSchulzOptions options = PlainOptions(PolarExpress());
  const std::vector<Matrix> small = Batch(3, 40, 64, 1);
  const std::vector<Matrix> expected = RunNewtonSchulz(*device, options, small);
  RunNewtonSchulz(*device, options, small);
  RunNewtonSchulz(*device, options, Batch(2, 256, 512, 7));
  for (int step = 0; step < 3; ++step) {
    const std::vector<Matrix> results = RunNewtonSchulz(*device, options, small);
    for (std::size_t i = 0; i < small.size(); ++i) {
      EXPECT_EQ(results[i].values, expected[i].values) << "step " << step << ", matrix " << i;
    }
  }
}

}  // namespace
}  // namespace dmuon::kernels::testing
