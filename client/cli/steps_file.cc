#include "client/cli/steps_file.h"

#include "client/cli/command.h"
#include "client/cli/text_file.h"
#include "proto/spec_reader.h"

namespace dmuon::cli {
namespace {

constexpr int kMaxDepth = 5;  // list > step > groups > group > betas

// Any number; which are right is StepValues' to say.
std::optional<double> ReadValue(const Json* value, const spec::KeyPath& path) {
  if (value == nullptr) {
    return std::nullopt;
  }
  constexpr double kLargest = std::numeric_limits<double>::max();
  return spec::ReadNumber(*value, path, {-kLargest, kLargest, false, false, "give a number"});
}

scheduler::GroupOverrides ReadGroup(const std::string& name, const Json& group,
                                    const spec::KeyPath& path) {
  spec::CheckKeys(group, path, {"lr", "weight_decay", "momentum", "betas"});
  const auto read = [&](std::string_view key) {
    return ReadValue(spec::Find(group, key), spec::KeyPath(path, key));
  };
  scheduler::GroupOverrides overrides;
  overrides.group = name;
  overrides.lr = read("lr");
  overrides.weight_decay = read("weight_decay");
  overrides.momentum = read("momentum");
  if (const Json* betas = spec::Find(group, "betas")) {
    const spec::KeyPath betas_path(path, "betas");
    if (!betas->is_array() || betas->size() != 2) {
      spec::Refuse(betas_path, Excerpt(*betas) + " is not a pair, like [0.9, 0.999]");
    }
    overrides.beta1 = ReadValue(&(*betas)[0], spec::KeyPath(betas_path, size_t{0}));
    overrides.beta2 = ReadValue(&(*betas)[1], spec::KeyPath(betas_path, size_t{1}));
  }
  return overrides;
}

scheduler::StepValues ReadStep(const Json& step, const spec::KeyPath& path,
                               const SessionSpec& spec) {
  spec::CheckKeys(step, path, {"groups", "grad_scale"});
  std::vector<scheduler::GroupOverrides> overrides;
  if (const Json* groups = spec::Find(step, "groups")) {
    const spec::KeyPath groups_path(path, "groups");
    if (!groups->is_object()) {
      spec::Refuse(groups_path, Excerpt(*groups) + " is not an object of groups");
    }
    for (const auto& [name, group] : groups->items()) {
      overrides.push_back(ReadGroup(name, group, spec::KeyPath(groups_path, name)));
    }
  }
  const double grad_scale =
      ReadValue(spec::Find(step, "grad_scale"), spec::KeyPath(path, "grad_scale")).value_or(1.0);
  Result<scheduler::StepValues> values = scheduler::StepValues::Make(spec, overrides, grad_scale);
  if (!values.ok()) {
    throw SpecError(path.Text() + "." + values.status().message());
  }
  return std::move(values.value());
}

std::vector<scheduler::StepValues> ParseSteps(const std::string& text, const SessionSpec& spec,
                                              size_t steps) {
  const Json root = ParseStrictJson(text, kMaxDepth);
  if (!root.is_array() || root.size() != steps) {
    throw SpecError("expected a list of " + std::to_string(steps) +
                    " steps, one for each --grads file; this is " +
                    (root.is_array() ? "a list of " + std::to_string(root.size()) : Excerpt(root)));
  }
  std::vector<scheduler::StepValues> values;
  values.reserve(root.size());
  for (size_t i = 0; i < root.size(); ++i) {
    const std::string title = "step[" + std::to_string(i) + "]";
    values.push_back(ReadStep(root[i], spec::KeyPath::Titled(title), spec));
  }
  return values;
}

}  // namespace

std::vector<scheduler::StepValues> ReadStepValues(const std::string& path, const SessionSpec& spec,
                                                  size_t steps) {
  if (path.empty()) {
    return {steps, scheduler::StepValues::Make(spec, {}, 1.0).value()};
  }
  try {
    return ParseSteps(ReadTextFile(path), spec, steps);
  } catch (const SpecError& error) {
    throw InputError(path + ": " + error.what());
  }
}

}  // namespace dmuon::cli
