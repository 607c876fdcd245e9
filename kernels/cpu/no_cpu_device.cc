// Stands in for the CPU backend in builds of the kernels alone on a machine without oneDNN.
#include <stdexcept>

#include "kernels/device.h"

namespace dmuon::kernels {

std::unique_ptr<Device> MakeCpuDevice(const CpuDeviceOptions&) {
  throw std::runtime_error(
      "cpu: this build has no CPU backend: install oneDNN (libdnnl-dev) and configure again with "
      "-DDMUON_CPU=ON, or use a CUDA device");
}

}  // namespace dmuon::kernels
