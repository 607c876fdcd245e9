#include "proto/presets.h"
#include "proto/session_spec.h"
#include "proto/spec_names.h"
#include "proto/strict_json.h"

namespace dmuon {
namespace {

Json GroupJson(const GroupSpec& group, const MuonSettings& preset) {
  const MuonSettings& muon = group.muon;
  Json json = {
      {"momentum", muon.momentum},
      {"momentum_dtype", spec::NameIn(spec::kMomentumDTypes, muon.momentum_dtype)},
      {"nesterov", muon.nesterov},
      {"momentum_form", spec::NameIn(spec::kMomentumForms, muon.momentum_form)},
      {"scale", spec::NameIn(spec::kScales, muon.scale)},
      {"normalize", spec::NameIn(spec::kNormalizations, muon.normalize)},
      {"coefficients", muon.coefficients},
      {"form", NameOf(muon.form)},
      {"precision", NameOf(muon.precision)},
      {"betas", {group.adamw.beta1, group.adamw.beta2}},
  };
  if (group.rule) {
    json["rule"] = NameOf(*group.rule);
  }
  if (muon.restart) {
    json["restart"] = *muon.restart;
  }
  // One key speaks for both rules, so it appears only where it is not the default of both.
  const AdamWSettings adamw;
  if (muon.lr != preset.lr || group.adamw.lr != adamw.lr) {
    json["lr"] = muon.lr;
  }
  if (muon.weight_decay != preset.weight_decay || group.adamw.weight_decay != adamw.weight_decay) {
    json["weight_decay"] = muon.weight_decay;
  }
  if (muon.eps != preset.eps || group.adamw.eps != adamw.eps) {
    json["eps"] = muon.eps;
  }
  return json;
}

Json ViewJson(const View& view) {
  Json json = Json::object();
  if (view.flatten) {
    json["flatten"] = true;
  }
  if (view.stack) {
    json["stack"] = true;
  }
  if (!view.split_rows.empty()) {
    json["split_rows"] = view.split_rows;
  }
  if (!view.split_cols.empty()) {
    json["split_cols"] = view.split_cols;
  }
  if (view.interleave_rows > 0) {
    json["interleave_rows"] = view.interleave_rows;
  }
  return json;
}

Json ParameterJson(const ParameterSpec& parameter, const std::vector<GroupSpec>& groups) {
  Json json = {{"name", parameter.name},
               {"shape", parameter.shape},
               {"dtype", NameOf(parameter.dtype)},
               {"rule", NameOf(parameter.rule)},
               {"group", groups[static_cast<size_t>(parameter.group)].name}};
  if (Json view = ViewJson(parameter.view); !view.empty()) {
    json["view"] = std::move(view);
  }
  if (parameter.order) {
    json["order"] = *parameter.order;
  }
  return json;
}

}  // namespace

std::string CanonicalJson(const SessionSpec& session) {
  const std::optional<MuonSettings> preset = spec::Preset(session.preset);
  Json json = {{"preset", session.preset},
               {"reduce", spec::NameIn(spec::kReductions, session.reduce)}};
  for (const auto& [key, text] :
       {std::pair("model", &session.model), {"source", &session.source}}) {
    if (!text->empty()) {
      json[key] = *text;
    }
  }
  if (session.max_grad_norm) {
    json["max_grad_norm"] = *session.max_grad_norm;
  }
  for (const GroupSpec& group : session.groups) {
    json["groups"][group.name] = GroupJson(group, preset.value_or(MuonSettings{}));
  }
  for (const ParameterSpec& parameter : session.parameters) {
    json["parameters"].push_back(ParameterJson(parameter, session.groups));
  }
  return json.dump();
}

}  // namespace dmuon
