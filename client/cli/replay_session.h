// A session in one process: a plan with one owner, its state, and its steps.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/piece_layout.h"
#include "kernels/device.h"
#include "proto/safetensors.h"
#include "scheduler/owned_state.h"
#include "scheduler/plan.h"
#include "scheduler/step_values.h"

namespace dmuon::cli {

// How many matrices one form and precision updated.
struct Orthogonalised {
  std::string form;
  std::string precision;
  uint64_t matrices = 0;
};

struct StepReport {
  bool committed = false;
  std::string reason;     // why not; empty when committed
  std::string parameter;  // which parameter was not finite
  double grad_norm = 0.0;
  double clip_factor = 1.0;
  std::vector<Orthogonalised> orthogonalised;
  uint32_t absent_parameters = 0;
};

class ReplaySession {
 public:
  // Throws InputError when the device lacks a precision that the spec asks for.
  ReplaySession(SessionSpec spec, std::unique_ptr<kernels::Device> device);

  // Runs one step on the gradients in `file`; a parameter that is not in it is absent. A step that
  // is not finite changes nothing. Throws InputError for a tensor that is no parameter's gradient.
  StepReport Step(const std::string& path, const SafetensorsFile& file,
                  const scheduler::StepValues& values);

  const SessionSpec& spec() const { return spec_; }
  const scheduler::Plan& plan() const { return plan_; }
  const PieceLayout& layout() const { return layout_; }
  scheduler::OwnedState& state() { return state_; }
  kernels::Device& device() { return *device_; }
  // Index of the parameter of that name. Throws InputError naming `path` if there is none.
  uint32_t ParameterIndex(const std::string& path, const std::string& name) const;

 private:
  // Checks the file's tensors and notes which parameters have a gradient.
  void MarkPresent(const std::string& path, const SafetensorsFile& file);
  // Fills the gradient buffers of what the file has. Returns the first parameter that is not
  // finite, or -1.
  int64_t LoadGradients(const std::string& path, const SafetensorsFile& file,
                        const scheduler::StepValues& values, StepReport* report);
  // Updates all present pieces. Returns the first parameter that is not finite, or -1.
  int64_t Update(const scheduler::StepValues& values, StepReport* report);
  // Whether the updated master is finite in the type that a trainer would get.
  bool StaysFinite(uint32_t piece);
  int64_t UpdateBatch(const std::vector<uint32_t>& batch, const scheduler::StepValues& values,
                      double clip_factor);

  SessionSpec spec_;
  std::unique_ptr<kernels::Device> device_;
  scheduler::Plan plan_;
  PieceLayout layout_;
  scheduler::OwnedState state_;
  std::vector<std::vector<uint32_t>> batches_;
  std::map<std::string, uint32_t> parameter_index_;
  std::vector<bool> present_;  // by parameter, in the step at hand
  std::vector<std::byte> staging_;
};

}  // namespace dmuon::cli
