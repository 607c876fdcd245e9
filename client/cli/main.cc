// dmuonctl: replays updates on files, plans, simulates, tunes, and talks to a running dmuond.
#include <iostream>

#include "client/cli/command.h"
#include "proto/session_spec.h"

namespace {

constexpr int kInternalError = 1;
constexpr int kBadInput = 2;

int Fail(const std::string& what, int exit_code) {
  std::cerr << "dmuonctl: " << what << std::endl;
  return exit_code;
}

int Run(int argc, char** argv) {
  CLI::App app(
      "dmuonctl: replays updates on files, plans, simulates, tunes, and talks to a running dmuond",
      "dmuonctl");
  app.set_version_flag("--version", "dmuonctl " DMUON_VERSION);
  app.require_subcommand(1);
  dmuon::cli::Action action;
  dmuon::cli::AddReplayCommand(&app, &action);
  dmuon::cli::AddPlanCommand(&app, &action);
  dmuon::cli::AddSimulateCommand(&app, &action);
  dmuon::cli::AddTuneCommand(&app, &action);
  dmuon::cli::AddStatusCommand(&app, &action);
  dmuon::cli::AddDrainCommand(&app, &action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      return app.exit(error);
    }
    return Fail(std::string(error.what()) + " (dmuonctl --help lists what there is)", kBadInput);
  }
  return action();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const dmuon::cli::InputError& error) {
    return Fail(error.what(), kBadInput);
  } catch (const dmuon::SpecError& error) {
    return Fail(error.what(), kBadInput);
  } catch (const std::bad_alloc&) {
    return Fail("not enough memory for this model on this machine", kInternalError);
  } catch (const std::exception& error) {
    return Fail(error.what(), kInternalError);
  }
}
