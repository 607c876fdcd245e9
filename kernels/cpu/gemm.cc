#include "kernels/cpu/gemm.h"

#include <dnnl.h>
#include <omp.h>

#include <stdexcept>
#include <string>

namespace dmuon::kernels {
namespace {

void Check(dnnl_status_t status, const char* call) {
  if (status != dnnl_success) {
    throw std::runtime_error(std::string("oneDNN: ") + call + " failed with status " +
                             std::to_string(static_cast<int>(status)));
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

}  // namespace

void Gemm(int64_t m, int64_t n, int64_t k, const GemmOperand<float>& left,
          const GemmOperand<float>& right, float* c, int64_t ldc) {
  const OneOpenMpThread one_thread;
  Check(dnnl_sgemm(left.transposed ? 'T' : 'N', right.transposed ? 'T' : 'N', m, n, k, 1.0F,
                   left.data, left.ld, right.data, right.ld, 0.0F, c, ldc),
        "dnnl_sgemm");
}

}  // namespace dmuon::kernels
