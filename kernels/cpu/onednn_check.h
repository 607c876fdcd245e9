// The one place where oneDNN's status becomes an error, and where its OpenMP is kept to one thread.
#pragma once

#include <dnnl.h>
#include <omp.h>

#include <stdexcept>
#include <string>

namespace dmuon::kernels {

inline void CheckOneDnn(dnnl_status_t status, const char* call) {
  if (status != dnnl_success) {
    throw std::runtime_error(std::string("oneDNN: ") + call + " failed with status " +
                             std::to_string(static_cast<int>(status)) +
                             "; run with ONEDNN_VERBOSE=1 to see the call");
  }
}

// oneDNN parallelises with OpenMP inside; the thread pool above it wants one thread per call. The
// setting belongs to the calling thread and is put back.
class OneOpenMpThread {
 public:
  OneOpenMpThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneOpenMpThread() { omp_set_num_threads(before_); }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  int before_;
};

}  // namespace dmuon::kernels
