#include "proto/session_spec.h"

#include "proto/presets.h"
#include "proto/spec_sections.h"

namespace dmuon {
namespace {

// The deepest thing in a spec: groups > muon > coefficients > triple > number.
constexpr int kMaxDepth = 6;
constexpr size_t kMaxInformativeBytes = 4096;

std::string ReadInformative(const Json& root, const spec::KeyPath& path, std::string_view key) {
  const Json* value = spec::Find(root, key);
  return value == nullptr ? std::string()
                          : spec::ReadText(*value, spec::KeyPath(path, key), kMaxInformativeBytes);
}

std::optional<double> ReadMaxGradNorm(const Json& root, const spec::KeyPath& path) {
  const Json* value = spec::Find(root, "max_grad_norm");
  if (value == nullptr || value->is_null()) {
    return std::nullopt;
  }
  constexpr spec::NumberRange kRange{0.0, std::numeric_limits<double>::max(), true, false,
                                     "a norm to clip at is > 0 (null: no clipping)"};
  return spec::ReadNumber(*value, spec::KeyPath(path, "max_grad_norm"), kRange);
}

MuonSettings ReadPreset(const Json& root, const spec::KeyPath& path, std::string* name) {
  if (const Json* value = spec::Find(root, "preset")) {
    if (!value->is_string() || !spec::Preset(value->get_ref<const std::string&>())) {
      spec::Refuse(spec::KeyPath(path, "preset"),
                   Excerpt(*value) + " is not one of " + spec::ListPresets());
    }
    *name = value->get<std::string>();
  }
  return *spec::Preset(*name);
}

}  // namespace

SessionSpec ParseSessionSpec(std::string_view json) {
  const Json root = ParseStrictJson(json, kMaxDepth);
  const spec::KeyPath path;
  spec::CheckKeys(root, path,
                  {"preset", "groups", "max_grad_norm", "reduce", "parameters", "model", "source"});
  SessionSpec session;
  const MuonSettings preset = ReadPreset(root, path, &session.preset);
  session.model = ReadInformative(root, path, "model");
  session.source = ReadInformative(root, path, "source");
  session.max_grad_norm = ReadMaxGradNorm(root, path);
  if (const Json* reduce = spec::Find(root, "reduce")) {
    session.reduce = spec::ReadEnum(*reduce, spec::KeyPath(path, "reduce"), spec::kReductions);
  }
  session.groups =
      spec::ReadGroups(spec::Find(root, "groups"), spec::KeyPath(path, "groups"), preset);
  session.parameters = spec::ReadParameters(spec::Find(root, "parameters"),
                                            spec::KeyPath(path, "parameters"), session.groups);
  return session;
}

}  // namespace dmuon
