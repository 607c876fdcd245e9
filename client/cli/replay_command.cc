// dmuonctl replay: the owners' exact update, in one process, on files.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client/cli/command.h"
#include "client/cli/replay_session.h"
#include "client/cli/replay_state.h"
#include "client/cli/steps_file.h"
#include "client/cli/text_file.h"

namespace dmuon::cli {
namespace {

struct ReplayOptions {
  std::string spec;
  std::string params;
  std::vector<std::string> grads;
  std::string out;
  std::string state_in;
  std::string state_out;
  std::string steps;
  int threads = 0;
  bool json = false;
};

// Found out now rather than after the work is done.
void CheckWritable(const std::string& path) {
  std::filesystem::path directory = std::filesystem::path(path).parent_path();
  if (directory.empty()) {
    directory = ".";
  }
  if (access(directory.c_str(), W_OK) != 0 || std::filesystem::is_directory(path)) {
    throw InputError(path + ": cannot be written; its directory must exist and be writable");
  }
}

nlohmann::json ToJson(size_t step, const StepReport& report) {
  nlohmann::json json = {{"step", step},
                         {"outcome", report.committed ? "committed" : "skipped"},
                         {"reason", report.reason},
                         {"parameter", report.parameter},
                         {"clip_factor", report.clip_factor},
                         {"absent_parameters", report.absent_parameters},
                         {"orthogonalised", nlohmann::json::array()}};
  json["grad_norm"] =
      std::isfinite(report.grad_norm) ? nlohmann::json(report.grad_norm) : nlohmann::json();
  for (const Orthogonalised& entry : report.orthogonalised) {
    json["orthogonalised"].push_back({{"rule", "muon"},
                                      {"form", entry.form},
                                      {"precision", entry.precision},
                                      {"matrices", entry.matrices}});
  }
  return json;
}

std::string ToText(size_t step, const StepReport& report) {
  std::ostringstream text;
  text << "step " << step << ": ";
  if (!report.committed) {
    text << "SKIPPED: " << report.reason << "; all state is as before";
    return text.str();
  }
  text << "committed, gradient norm " << report.grad_norm << ", clip factor " << report.clip_factor
       << ", orthogonalised";
  for (const Orthogonalised& entry : report.orthogonalised) {
    text << " " << entry.matrices << " (muon " << entry.form << " " << entry.precision << ")";
  }
  text << (report.orthogonalised.empty() ? " 0" : "") << ", absent parameters "
       << report.absent_parameters;
  return text.str();
}

SafetensorsFile OpenGradients(const std::string& path) {
  try {
    return SafetensorsFile(path);
  } catch (const std::runtime_error& error) {
    throw InputError(error.what());
  }
}

int Replay(const ReplayOptions& options) {
  SessionSpec spec = ReadSpecFile(options.spec);
  const std::vector<scheduler::StepValues> values =
      ReadStepValues(options.steps, spec, options.grads.size());
  CheckWritable(options.out);
  if (!options.state_out.empty()) {
    CheckWritable(options.state_out);
  }
  ReplaySession session(std::move(spec), kernels::MakeCpuDevice({options.threads}));
  LoadParameters(options.params, &session);
  if (!options.state_in.empty()) {
    LoadState(options.state_in, &session);
  }
  for (size_t i = 0; i < options.grads.size(); ++i) {
    const StepReport report =
        session.Step(options.grads[i], OpenGradients(options.grads[i]), values[i]);
    if (options.json) {
      std::cout << ToJson(i + 1, report).dump() << std::endl;
    } else {
      std::cout << ToText(i + 1, report) << std::endl;
    }
  }
  WriteParameters(options.out, &session);
  if (!options.state_out.empty()) {
    WriteState(options.state_out, &session);
  }
  return 0;
}

}  // namespace

void AddReplayCommand(CLI::App* app, Action* action) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* command =
      app->add_subcommand("replay", "Run the owners' exact update in this process, on files");
  command->add_option("--spec", options->spec, "session spec (JSON)")->required();
  command->add_option("--params", options->params, "parameters before (safetensors)")->required();
  command
      ->add_option("--grads", options->grads,
                   "gradients of one step (safetensors), once per step; a parameter that is "
                   "missing from it is absent in that step")
      ->required();
  command->add_option("--out", options->out, "parameters after (safetensors)")->required();
  command->add_option("--state-in", options->state_in, "optimizer state before (default: none)");
  command->add_option("--state-out", options->state_out, "optimizer state after");
  command->add_option("--steps", options->steps,
                      "JSON list, one object per step: {\"grad_scale\": 1, \"groups\": {\"muon\": "
                      "{\"lr\": 0.02}}}");
  command->add_option("--threads", options->threads, "compute threads (default: all cores)")
      ->check(CLI::Range(0, 4096));
  command->add_flag("--json", options->json, "report each step as one line of JSON");
  command->callback([options, action] { *action = [options] { return Replay(*options); }; });
}

}  // namespace dmuon::cli
