#include "scheduler/simulator/workload.h"

#include <algorithm>

namespace dmuon::simulator {
namespace {

constexpr std::string_view kDigits = "0123456789";

// The name up to and including its first number; empty without one.
std::string_view NumberedPrefix(std::string_view name) {
  const size_t start = name.find_first_of(kDigits);
  if (start == std::string_view::npos) {
    return {};
  }
  return name.substr(0, std::min(name.size(), name.find_first_not_of(kDigits, start)));
}

}  // namespace

std::vector<Layer> LayersOf(const SessionSpec& spec) {
  std::vector<Layer> layers;
  std::string_view current;
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    const ParameterSpec& parameter = spec.parameters[i];
    const std::string_view prefix = NumberedPrefix(parameter.name);
    if (layers.empty() || prefix != current) {
      current = prefix;
      Layer layer;
      layer.name = prefix.empty() ? parameter.name : std::string(prefix);
      layer.first_parameter = i;
      layers.push_back(std::move(layer));
    }
    Layer& layer = layers.back();
    layer.end_parameter = i + 1;
    layer.elements += static_cast<double>(parameter.elements());
    layer.bytes += static_cast<double>(parameter.elements() * SizeOf(parameter.dtype));
  }
  return layers;
}

std::vector<size_t> LayerOfParameter(const std::vector<Layer>& layers) {
  std::vector<size_t> layer_of;
  for (size_t i = 0; i < layers.size(); ++i) {
    layer_of.resize(layers[i].end_parameter, i);
  }
  return layer_of;
}

}  // namespace dmuon::simulator
