#include "kernels/cpu/cpu_features.h"

#include <algorithm>
#include <fstream>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif
#include <sys/utsname.h>

namespace dmuon::kernels {

// AMX-BF16 processors have AVX512-BF16 too, and oneDNN needs AVX512 for both, so that one feature
// (with the operating system's support for AVX512 state, which the builtin checks) answers it.
bool HasNativeBFloat16() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

std::string VectorExtension() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") != 0) {
    return "avx512";
  }
  if (__builtin_cpu_supports("avx2") != 0) {
    return "avx2";
  }
#endif
  return "generic";
}

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  utsname machine;
  return uname(&machine) == 0 ? std::string(machine.machine) + " processor" : "processor";
}

int AvailableCores() {
#ifdef __linux__
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    return std::max(1, CPU_COUNT(&cores));
  }
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace dmuon::kernels
