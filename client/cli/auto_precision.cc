#include "client/cli/auto_precision.h"

#include "kernels/device.h"
#include "scheduler/step_values.h"

namespace dmuon::cli {

kernels::ElementType AutoPrecision(const std::string& name, const scheduler::CostProfile* profile) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (name == NameOf(dtype)) {
      return scheduler::ElementTypeOf(dtype);
    }
  }
  if (profile != nullptr && profile->auto_precision()) {
    return *profile->auto_precision();
  }
  return kernels::MakeCpuDevice({1})->AutoPrecision();
}

}  // namespace dmuon::cli
