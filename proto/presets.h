// The coefficient sets and presets of the spec. Internal to proto/.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "proto/session_spec.h"

namespace dmuon::spec {

using Coefficients = std::vector<std::array<double, 3>>;

// "polar_express", "you", "keller_jordan". Nothing for another name.
std::optional<Coefficients> CoefficientSet(std::string_view name);
std::string ListCoefficientSets();

// What a group starts from under the preset's name. Nothing for another name.
std::optional<MuonSettings> Preset(std::string_view name);
std::string ListPresets();

}  // namespace dmuon::spec
