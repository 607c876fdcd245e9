// dmuond: one owner process of the DMuon daemon.
#include <malloc.h>
#include <sched.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <thread>

#include "daemon/config.h"
#include "daemon/control/control_server.h"
#include "daemon/engine.h"
#include "daemon/last_words.h"
#include "daemon/neighbour_watch.h"
#include "daemon/signals.h"
#include "daemon/transport/job_files.h"
#include "daemon/transport/mpi_world.h"
#include "daemon/tuning.h"
#include "daemon/version.h"
#include "kernels/device.h"

namespace dmuon {
namespace {

constexpr int kUsageError = 2;
constexpr int kFinalizeLimit_s = 60;

void SetUpLog(const Config& config, const std::string& tag) {
  auto logger = spdlog::stderr_logger_mt(tag);
  logger->set_pattern("%H:%M:%S.%e [%n] %l: %v");
  logger->set_level(spdlog::level::from_str(config.log_level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
}

int ThreadsPerOwner(const Config& config, const MpiWorld& world) {
  if (config.threads > 0) return config.threads;
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  int share = cores / static_cast<int>(world.owners_on_node().size());
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    share = std::min(share, CPU_COUNT(&allowed));
  }
  return std::max(1, share);
}

std::unique_ptr<kernels::Device> MakeDevice(const Config& config, const MpiWorld& world) {
  const auto& neighbours = world.owners_on_node();
  int place = static_cast<int>(std::find(neighbours.begin(), neighbours.end(), world.owner()) -
                               neighbours.begin());
  std::string reason = "asked for";
  if (config.device != "cpu") {
    try {
      auto device = kernels::MakeCudaDevice({.ordinal = place, .deterministic = !config.batched});
      spdlog::info("device {}", device->Describe());
      return device;
    } catch (const std::runtime_error& error) {
      if (config.device == "cuda") throw;
      reason = std::string("auto: ") + error.what();
    }
  }
  kernels::CpuDeviceOptions options;
  options.threads = ThreadsPerOwner(config, world);
  auto device = kernels::MakeCpuDevice(options);
  spdlog::info("device {}, precision auto is {} ({})", device->Describe(),
               kernels::NameOf(device->AutoPrecision()), reason);
  return device;
}

void UseTuning(const Config& config, kernels::Device& device) {
  if (config.tuning.empty()) return;
  const TuningUse use = UseTuningCache(config.tuning, device);
  spdlog::log(use.tuned ? spdlog::level::info : spdlog::level::warn, "{}", use.line);
}

// Ends the process if the other ranks never come to MPI_Finalize.
void GuardFinalize(const MpiWorld& world, int code) {
  if (!world.has_trainers()) return;
  std::thread([code] {
    std::this_thread::sleep_for(std::chrono::seconds(kFinalizeLimit_s));
    spdlog::warn("trainers of this MPI job did not call MPI_Finalize within {} s; leaving without",
                 kFinalizeLimit_s);
    _exit(code);
  }).detach();
}

int Serve(const Config& config) {
  MpiWorld world(config.startup_s);
  spdlog::drop_all();
  SetUpLog(config, "owner " + std::to_string(world.owner()));
  std::string socket_path = SocketPath(config.address);
  std::atomic<bool> has_socket = false;
  int code = 1;
  // Nothing is waited for: the line goes out, files go away, the job ends.
  auto give_up = [&](const std::exception& error) {
    spdlog::critical("{}", error.what());
    if (has_socket) unlink(socket_path.c_str());
    RemoveJobFiles();
    MpiWorld::Abort(1);
  };
  try {
    std::unique_ptr<kernels::Device> device = MakeDevice(config, world);
    UseTuning(config, *device);
    NeighbourWatch neighbours(world);
    Engine engine(config, world, *device);
    SignalThread signals(
        [&engine] { engine.RequestDrain(); },
        [&](int signal) {
          spdlog::critical("{}", LastWords(world, neighbours.Ended(), signal, engine.Pending()));
          if (has_socket) unlink(socket_path.c_str());
          RemoveJobFiles();
          _exit(128 + signal);
        });
    std::optional<ControlServer> server;
    if (world.serves_socket()) {
      server.emplace(socket_path, engine);
      has_socket = true;
    }
    if (world.owner() == 0) {
      std::printf("dmuond ready: %d owners, address %s\n", world.owners(), config.address.c_str());
      std::fflush(stdout);
    }
    try {
      code = engine.Run();
    } catch (const std::exception& error) {
      give_up(error);
    }
  } catch (const std::exception& error) {
    give_up(error);
  }
  GuardFinalize(world, code);
  return code;
}

}  // namespace
}  // namespace dmuon

int main(int argc, char** argv) {
  // gRPC's threads come and go; without a limit each warms up an arena of its own.
  mallopt(M_ARENA_MAX, 2);
  dmuon::BlockSignals();
  try {
    dmuon::CommandLine line = dmuon::ParseCommandLine({argv + 1, argv + argc});
    if (line.help) {
      std::fputs(line.help->c_str(), stdout);
      return 0;
    }
    if (line.version) {
      std::printf("dmuond %s\n", dmuon::kVersion);
      return 0;
    }
    if (line.check_config) {
      std::printf("configuration ok: address %s\n", line.config.address.c_str());
      return 0;
    }
    dmuon::SetUpLog(line.config, "dmuond");
    return dmuon::Serve(line.config);
  } catch (const dmuon::ConfigError& error) {
    std::fprintf(stderr, "dmuond: %s\n", error.what());
    return dmuon::kUsageError;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dmuond: %s\n", error.what());
    dmuon::MpiWorld::Abort(1);
  }
}
