// The two kinds of profile files, each read by its own file. Internal to scheduler/.
#pragma once

#include <string>

#include "proto/spec_reader.h"
#include "scheduler/cost_profile.h"

namespace dmuon::scheduler {

inline constexpr std::string_view kAnalyticFormat = "dmuon-profile-1";
inline constexpr std::string_view kTuningFormat = "dmuon-tuning-1";

inline constexpr spec::EnumName<kernels::ElementType> kPrecisionNames[] = {
    {"fp32", kernels::ElementType::kFloat32},
    {"bf16", kernels::ElementType::kBFloat16},
    {"fp16", kernels::ElementType::kFloat16}};

// Both throw SpecError naming the key; the caller adds the file.
CostProfilePtr ReadAnalyticProfile(const Json& json, const spec::KeyPath& path);
CostProfilePtr ReadMeasuredProfile(const Json& json, const spec::KeyPath& path,
                                   const std::string& entry);

// The value under `key`; refused where it is missing.
const Json& Require(const Json& object, const spec::KeyPath& path, std::string_view key);
double ReadPositive(const Json& object, const spec::KeyPath& path, std::string_view key);

}  // namespace dmuon::scheduler
