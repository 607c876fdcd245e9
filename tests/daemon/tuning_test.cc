#include "daemon/tuning.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "scheduler/tuning_cache.h"
#include "tests/daemon/expect_text.h"

namespace dmuon {
namespace {

class TuningUseTest : public testing::Test {
 protected:
  ~TuningUseTest() override {
    for (const char* suffix : {"", ".lock"}) std::filesystem::remove(path_ + suffix);
  }

  void Record(const kernels::DeviceIdentity& identity, const kernels::MuonExecution& choice) {
    kernels::ExecutionCase measured;
    measured.rows = measured.cols = 64;
    measured.iterations = 5;
    scheduler::TuningCache(path_).Merge(identity, {1e9, {{measured, choice, 0.5}}});
  }

  std::unique_ptr<kernels::Device> device_ = kernels::MakeCpuDevice({2});
  std::string path_ = testing::TempDir() + "tuning-use-" + std::to_string(getpid()) + ".json";
};

TEST_F(TuningUseTest, UsesWhatWasMeasuredHere) {
  Record(device_->Identity(), {.sharing = 2});
  const TuningUse use = UseTuningCache(path_, *device_);
  EXPECT_TRUE(use.tuned);
  test::ExpectNames(use.line, {"1 choices", path_, scheduler::TuningKey(device_->Identity())});
}

TEST_F(TuningUseTest, MissingFileMeansDefaults) {
  const TuningUse use = UseTuningCache(path_, *device_);
  EXPECT_FALSE(use.tuned);
  test::ExpectNames(use.line, {path_, "does not exist", "defaults", "dmuonctl tune"});
}

TEST_F(TuningUseTest, NothingForThisDeviceMeansDefaults) {
  kernels::DeviceIdentity other = device_->Identity();
  other.threads = 77;
  Record(other, {});
  const TuningUse use = UseTuningCache(path_, *device_);
  EXPECT_FALSE(use.tuned);
  test::ExpectNames(use.line, {path_, scheduler::TuningKey(device_->Identity()),
                               scheduler::TuningKey(other), "--threads 2"});
}

TEST_F(TuningUseTest, DamagedFileIsAnError) {
  std::ofstream(path_) << "{";
  EXPECT_THROW(UseTuningCache(path_, *device_), std::runtime_error);
}

TEST_F(TuningUseTest, ChoiceThatTheDeviceLacksIsAnError) {
  Record(device_->Identity(), {.symmetric_tile = 48});
  try {
    UseTuningCache(path_, *device_);
    FAIL() << "was taken";
  } catch (const std::runtime_error& error) {
    test::ExpectNames(error.what(), {"kernels.tuning", path_, "symmetric_tile 48"});
  }
}

}  // namespace
}  // namespace dmuon
