// dmuond's configuration: a TOML file, overridden by flags.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace dmuon {

// Configuration that is refused. what() is one line naming key and value.
class ConfigError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

struct Config {
  // [control]
  std::string address;  // "unix:/absolute/path"; default unix:/tmp/dmuond-<uid>.sock
  // [owner]
  std::string device = "auto";  // "auto", "cpu" or "cuda"
  int threads = 0;              // 0: this host's cores divided by the owners on it
  int idle_poll_us = 1000;      // how long an idle owner sleeps between looks at MPI
  // [timeouts], seconds
  double startup_s = 300;   // until every rank of the job has said hello
  double attach_s = 300;    // from OpenSession until every trainer is ready
  double step_s = 300;      // from the first BeginStep to the commit
  double heartbeat_s = 10;  // silence after which an owner counts as lost
  // [plan]
  int64_t bucket_mib = 32;
  std::string profile;           // shipped name or file; empty: useful flops
  std::string profile_entry;     // device of a tuning file
  double link_gbytes_per_s = 0;  // of an owner's link each way; 0: communication is not counted
  double memory_gib = 0;         // of an owner's state and buckets; 0: no limit
  double solver_s = 3;           // never more than half of heartbeat_s
  int solver_nodes = 2000;       // of each integer program
  // [session]
  bool exit_after_session = false;
  // [log]
  std::string log_level = "info";
};

// What the command line asks for besides the configuration.
struct CommandLine {
  Config config;
  bool check_config = false;
  bool version = false;
  std::optional<std::string> help;  // set: print it and leave
};

// Reads flags, then the file that --config names; flags win. Throws ConfigError.
CommandLine ParseCommandLine(const std::vector<std::string>& arguments);

// Path inside "unix:/path". Throws ConfigError unless it is absolute and fits a socket address.
std::string SocketPath(const std::string& address);

}  // namespace dmuon
