// How subcommands plug into dmuonctl.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>

namespace dmuon::cli {

// Wrong input: reported as one line, exit code 2. Other exceptions: one line, exit code 1.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What main runs once the command line has been read; returns the exit code.
using Action = std::function<int()>;

// Each adds its subcommand to `app`; when that is chosen, it sets `*action`. Both outlive parsing.
void AddReplayCommand(CLI::App* app, Action* action);
void AddPlanCommand(CLI::App* app, Action* action);
void AddSimulateCommand(CLI::App* app, Action* action);
void AddTuneCommand(CLI::App* app, Action* action);
void AddStatusCommand(CLI::App* app, Action* action);
void AddDrainCommand(CLI::App* app, Action* action);

}  // namespace dmuon::cli
