// Stands in for the CUDA backend in builds without the toolkit.
#include <stdexcept>
#include <string>

#include "kernels/device.h"

namespace dmuon::kernels {

std::unique_ptr<Device> MakeCudaDevice(const CudaDeviceOptions& options) {
  throw std::runtime_error("cuda:" + std::to_string(options.ordinal) +
                           ": this build has no CUDA backend: install the CUDA toolkit and "
                           "configure again with -DDMUON_CUDA=ON, or use the cpu device");
}

}  // namespace dmuon::kernels
