// A build without oneDNN.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "kernels/device.h"

namespace dmuon::kernels::testing {
namespace {

TEST(CpuDevice, SaysWhyThereIsNone) {
  try {
    MakeCpuDevice({1});
    FAIL() << "made a device that this build does not have";
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.rfind("cpu: this build has no CPU backend", 0), 0U) << what;
    EXPECT_NE(what.find("DMUON_CPU=ON"), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace dmuon::kernels::testing
