// A model as a step sees it: layers that are computed, reduced and waited for one after the other.
#pragma once

#include <string>
#include <vector>

#include "proto/session_spec.h"

namespace dmuon::simulator {

// Neighbours in canonical order whose names agree up to and including their first number ("h.3"),
// or a run of parameters without a number.
struct Layer {
  std::string name;
  size_t first_parameter = 0;
  size_t end_parameter = 0;
  double elements = 0.0;
  double bytes = 0.0;  // in the parameters' own types
};

// In canonical order, which is taken to be the order of the forward pass.
std::vector<Layer> LayersOf(const SessionSpec& spec);

// For each parameter the number of its layer.
std::vector<size_t> LayerOfParameter(const std::vector<Layer>& layers);

}  // namespace dmuon::simulator
