// What only the CUDA backend promises, and builds without it.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "kernels/device.h"

namespace dmuon::kernels::testing {
namespace {

// Never a crash: one line that names the device and the reason.
TEST(CudaDevice, SaysWhyThereIsNone) {
  try {
    MakeCudaDevice(9999);
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

}  // namespace
}  // namespace dmuon::kernels::testing
