#include <algorithm>

#include "proto/presets.h"
#include "proto/spec_sections.h"

namespace dmuon::spec {
namespace {

constexpr size_t kMaxIterations = 64;
constexpr double kLargest = std::numeric_limits<double>::max();
constexpr NumberRange kLearningRate{0.0, kLargest, false, false, "a learning rate is >= 0"};
constexpr NumberRange kWeightDecay{0.0, kLargest, false, false, "a weight decay is >= 0"};
constexpr NumberRange kMomentum{0.0, 1.0, false, true, "a momentum is in [0, 1)"};
constexpr NumberRange kBeta{0.0, 1.0, false, true, "a beta is in [0, 1)"};
constexpr NumberRange kEps{0.0, kLargest, true, false,
                           "eps is > 0 (without it a zero gradient divides by zero)"};
constexpr NumberRange kCoefficient{-kLargest, kLargest, false, false,
                                   "a coefficient is a finite number"};

Coefficients ReadCoefficients(const Json& value, const KeyPath& path) {
  if (value.is_string()) {
    if (auto set = CoefficientSet(value.get_ref<const std::string&>())) {
      return *set;
    }
  }
  if (!value.is_array() || value.empty() || value.size() > kMaxIterations) {
    Refuse(path, Excerpt(value) + " is neither one of " + ListCoefficientSets() +
                     " nor a list of 1 to " + std::to_string(kMaxIterations) +
                     " triples [a, b, c]");
  }
  Coefficients coefficients;
  for (size_t i = 0; i < value.size(); ++i) {
    const KeyPath triple_path(path, i);
    const Json& triple = value[i];
    if (!triple.is_array() || triple.size() != 3) {
      Refuse(triple_path, Excerpt(triple) + " is not a triple [a, b, c]");
    }
    std::array<double, 3>& read = coefficients.emplace_back();
    for (size_t j = 0; j < 3; ++j) {
      read[j] = ReadNumber(triple[j], KeyPath(triple_path, j), kCoefficient);
    }
  }
  return coefficients;
}

std::vector<int> ReadRestart(const Json& value, const KeyPath& path, size_t iterations) {
  if (!value.is_array()) {
    Refuse(path, Excerpt(value) + " is not a list of iterations, like [2]");
  }
  std::vector<int> restart;
  for (size_t i = 0; i < value.size(); ++i) {
    const auto last = static_cast<int64_t>(iterations) - 1;
    const bool usable = value[i].is_number_integer() && value[i] >= 1 && value[i] <= last;
    if (!usable) {
      Refuse(KeyPath(path, i), Excerpt(value[i]) + " is not an iteration to restart before; with " +
                                   std::to_string(iterations) +
                                   " coefficient triples these are 1 to " + std::to_string(last) +
                                   " (counted from 0)");
    }
    const int iteration = value[i].get<int>();
    if (!restart.empty() && iteration <= restart.back()) {
      Refuse(path, Excerpt(value) + " is not ascending; name each iteration once, in order");
    }
    restart.push_back(iteration);
  }
  return restart;
}

// Values that both rules know.
void ReadShared(const Json& group, const KeyPath& path, GroupSpec* spec) {
  if (const Json* value = Find(group, "lr")) {
    spec->muon.lr = spec->adamw.lr = ReadNumber(*value, KeyPath(path, "lr"), kLearningRate);
  }
  if (const Json* value = Find(group, "weight_decay")) {
    spec->muon.weight_decay = spec->adamw.weight_decay =
        ReadNumber(*value, KeyPath(path, "weight_decay"), kWeightDecay);
  }
  if (const Json* value = Find(group, "eps")) {
    spec->muon.eps = spec->adamw.eps = ReadNumber(*value, KeyPath(path, "eps"), kEps);
  }
}

void ReadMuon(const Json& group, const KeyPath& path, MuonSettings* muon) {
  if (const Json* value = Find(group, "momentum")) {
    muon->momentum = ReadNumber(*value, KeyPath(path, "momentum"), kMomentum);
  }
  if (const Json* value = Find(group, "momentum_dtype")) {
    muon->momentum_dtype = ReadEnum(*value, KeyPath(path, "momentum_dtype"), kMomentumDTypes);
  }
  if (const Json* value = Find(group, "nesterov")) {
    muon->nesterov = ReadBool(*value, KeyPath(path, "nesterov"));
  }
  if (const Json* value = Find(group, "momentum_form")) {
    muon->momentum_form = ReadEnum(*value, KeyPath(path, "momentum_form"), kMomentumForms);
  }
  if (const Json* value = Find(group, "scale")) {
    muon->scale = ReadEnum(*value, KeyPath(path, "scale"), kScales);
  }
  if (const Json* value = Find(group, "normalize")) {
    muon->normalize = ReadEnum(*value, KeyPath(path, "normalize"), kNormalizations);
  }
}

void ReadNewtonSchulz(const Json& group, const KeyPath& path, MuonSettings* muon) {
  if (const Json* value = Find(group, "coefficients")) {
    muon->coefficients = ReadCoefficients(*value, KeyPath(path, "coefficients"));
  }
  if (const Json* value = Find(group, "form")) {
    muon->form = ReadEnum(*value, KeyPath(path, "form"), kForms);
  }
  if (const Json* value = Find(group, "restart")) {
    muon->restart = ReadRestart(*value, KeyPath(path, "restart"), muon->coefficients.size());
  }
  if (const Json* value = Find(group, "precision")) {
    muon->precision = ReadEnum(*value, KeyPath(path, "precision"), kPrecisions);
  }
}

void ReadBetas(const Json& group, const KeyPath& path, AdamWSettings* adamw) {
  const Json* value = Find(group, "betas");
  if (value == nullptr) {
    return;
  }
  const KeyPath betas(path, "betas");
  if (!value->is_array() || value->size() != 2) {
    Refuse(betas, Excerpt(*value) + " is not a pair, like [0.9, 0.999]");
  }
  adamw->beta1 = ReadNumber((*value)[0], KeyPath(betas, size_t{0}), kBeta);
  adamw->beta2 = ReadNumber((*value)[1], KeyPath(betas, size_t{1}), kBeta);
}

void ReadRule(const Json& group, const KeyPath& path, GroupSpec* spec) {
  const Json* value = Find(group, "rule");
  if (value == nullptr) {
    return;
  }
  const KeyPath rule_path(path, "rule");
  spec->rule = ReadEnum(*value, rule_path, kRules);
  const bool is_default_group = spec->name == "muon" || spec->name == "adamw";
  if (is_default_group && spec->name != NameOf(*spec->rule)) {
    Refuse(rule_path, Excerpt(*value) + " contradicts the group's name: '" + spec->name +
                          "' holds the parameters of that rule that name no group; use another "
                          "group name");
  }
}

GroupSpec ReadGroup(const Json& group, const KeyPath& path, GroupSpec spec) {
  CheckKeys(
      group, path,
      {"rule", "lr", "weight_decay", "momentum", "momentum_dtype", "nesterov", "momentum_form",
       "scale", "normalize", "eps", "coefficients", "form", "restart", "precision", "betas"});
  ReadRule(group, path, &spec);
  ReadShared(group, path, &spec);
  ReadMuon(group, path, &spec.muon);
  ReadNewtonSchulz(group, path, &spec.muon);
  ReadBetas(group, path, &spec.adamw);
  return spec;
}

}  // namespace

std::vector<GroupSpec> ReadGroups(const Json* groups, const KeyPath& path,
                                  const MuonSettings& preset) {
  std::map<std::string, GroupSpec> by_name;
  for (const std::string name : {"muon", "adamw"}) {
    by_name[name] = GroupSpec{name, std::nullopt, preset, AdamWSettings{}};
  }
  if (groups != nullptr) {
    if (!groups->is_object() || groups->size() > kMaxGroups) {
      Refuse(path, Excerpt(*groups) + " is not an object of at most " + std::to_string(kMaxGroups) +
                       " groups");
    }
    for (const auto& [key, group] : groups->items()) {
      const KeyPath group_path(path, key);
      const std::string name = ReadText(Json(key), group_path, kMaxNameBytes);
      by_name[name] =
          ReadGroup(group, group_path, GroupSpec{name, std::nullopt, preset, AdamWSettings{}});
    }
  }
  std::vector<GroupSpec> sorted;
  sorted.reserve(by_name.size());
  for (auto& [name, group] : by_name) {
    sorted.push_back(std::move(group));
  }
  return sorted;
}

}  // namespace dmuon::spec
