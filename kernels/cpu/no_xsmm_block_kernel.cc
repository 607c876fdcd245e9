// Builds without libxsmm: block products run through the portable kernel.
#include "kernels/cpu/block_kernel.h"

namespace dmuon::kernels {

GeneratedBlockKernel GenerateBlockKernel(int64_t) { return {}; }

void RunGenerated(void (*)(), const float*, const float*, int64_t, float*) {}

}  // namespace dmuon::kernels
