// What the processor can do, found at run time.
#pragma once

#include <string>

namespace dmuon::kernels {

// bf16 matrix products in hardware (AVX512-BF16 or AMX-BF16), usable in this process.
bool HasNativeBFloat16();

// The widest vector extension, for people: "avx512", "avx2" or "generic".
std::string VectorExtension();

// The model as the system names it, "AMD EPYC 7B13"; the machine's architecture where it does not.
std::string ProcessorName();

// Cores that this process may run on, at least 1.
int AvailableCores();

}  // namespace dmuon::kernels
