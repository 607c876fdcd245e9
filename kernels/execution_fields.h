// The members of MuonExecution by name, for files and people. Apart from execution.h, which kernels
// include: nvcc writes pointers to members in a way that g++ warns of.
#pragma once

#include <span>
#include <string_view>

#include "kernels/execution.h"

namespace dmuon::kernels {

struct ExecutionField {
  std::string_view name;
  int MuonExecution::*value;
};
std::span<const ExecutionField> ExecutionFields();

}  // namespace dmuon::kernels
