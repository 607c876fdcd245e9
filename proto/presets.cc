#include "proto/presets.h"

#include <cmath>
#include <utility>

namespace dmuon::spec {
namespace {

Coefficients KellerJordan() { return Coefficients(5, {3.4445, -4.7750, 2.0315}); }

Coefficients You() {
  return {{4.0848, -6.8946, 2.9270},
          {3.9505, -6.3029, 2.6377},
          {3.7418, -5.5913, 2.3037},
          {2.8769, -3.1427, 1.2046},
          {2.8366, -3.0525, 1.2012}};
}

// arXiv 2505.16932, made safe against rounding by shrinking the input by 1.05 in every iteration.
Coefficients PolarExpress() {
  Coefficients coefficients = {{8.28721201814563, -23.595886519098837, 17.300387312530933},
                               {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                               {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                               {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                               {2.300652019954817, -1.6689039845747493, 0.4188073119525673}};
  for (auto& [a, b, c] : coefficients) {
    a /= 1.05;
    b /= 1.05 * 1.05 * 1.05;
    c /= 1.05 * 1.05 * 1.05 * 1.05 * 1.05;
  }
  return coefficients;
}

using CoefficientSetEntry = std::pair<std::string_view, Coefficients (*)()>;
constexpr CoefficientSetEntry kCoefficientSets[] = {
    {"polar_express", PolarExpress}, {"you", You}, {"keller_jordan", KellerJordan}};

struct PresetEntry {
  std::string_view name;
  MomentumForm momentum_form;
  UpdateScale scale;
  Normalize normalize;
  Coefficients (*coefficients)();
  double lr;
  double weight_decay;
};

constexpr PresetEntry kPresets[] = {
    {"dmuon", MomentumForm::kSgd, UpdateScale::kMatchRmsAdamW, Normalize::kStrict, PolarExpress,
     0.02, 0.0},
    {"keller_jordan", MomentumForm::kEma, UpdateScale::kOriginal, Normalize::kEpsAdd, KellerJordan,
     0.02, 0.0},
    {"moonlight", MomentumForm::kSgd, UpdateScale::kMatchRmsAdamW, Normalize::kEpsAdd, KellerJordan,
     1e-3, 0.1},
    {"torch", MomentumForm::kEma, UpdateScale::kOriginal, Normalize::kEpsMax, KellerJordan, 1e-3,
     0.1},
    {"gram_newton_schulz", MomentumForm::kSgd, UpdateScale::kMatchRmsAdamW, Normalize::kEpsAdd,
     PolarExpress, 1e-3, 0.1},
};

}  // namespace

std::optional<Coefficients> CoefficientSet(std::string_view name) {
  for (const auto& [entry_name, make] : kCoefficientSets) {
    if (entry_name == name) {
      return make();
    }
  }
  return std::nullopt;
}

std::string ListCoefficientSets() {
  std::string list;
  for (const auto& [name, make] : kCoefficientSets) {
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return list;
}

std::optional<MuonSettings> Preset(std::string_view name) {
  for (const PresetEntry& entry : kPresets) {
    if (entry.name == name) {
      MuonSettings settings;
      settings.momentum_form = entry.momentum_form;
      settings.scale = entry.scale;
      settings.normalize = entry.normalize;
      settings.coefficients = entry.coefficients();
      settings.lr = entry.lr;
      settings.weight_decay = entry.weight_decay;
      return settings;
    }
  }
  return std::nullopt;
}

std::string ListPresets() {
  std::string list;
  for (const PresetEntry& entry : kPresets) {
    list += (list.empty() ? "" : ", ") + std::string(entry.name);
  }
  return list;
}

}  // namespace dmuon::spec
