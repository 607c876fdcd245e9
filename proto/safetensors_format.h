// The safetensors spelling of element types. Internal to proto/.
#pragma once

#include <string_view>

#include "proto/spec_names.h"

namespace dmuon {

inline constexpr spec::EnumName<DType> kSafetensorsDTypes[] = {{"F32", DType::kFloat32},
                                                               {"BF16", DType::kBFloat16},
                                                               {"F16", DType::kFloat16},
                                                               {"I64", DType::kInt64}};

// The key of the header that holds no tensor but free text.
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

}  // namespace dmuon
