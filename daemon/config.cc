#include "daemon/config.h"

#include <fmt/format.h>
#include <sys/un.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "scheduler/cost_profile.h"

namespace dmuon {
namespace {

// One option: how the file and the command line spell it, and where it goes.
struct Option {
  std::string key;   // "section.name" in the file
  std::string flag;  // "--name" on the command line
  std::string help;
  // Exactly one is set.
  std::string* text = nullptr;
  double* number = nullptr;
  int* integer = nullptr;
  int64_t* long_integer = nullptr;
  bool* boolean = nullptr;
};

std::vector<Option> OptionsOf(Config& c) {
  std::vector<Option> options;
  auto add = [&](std::string key, std::string flag, std::string help) -> Option& {
    options.push_back({std::move(key), std::move(flag), std::move(help)});
    return options.back();
  };
  add("control.address", "--address", "where to listen: unix:/absolute/path").text = &c.address;
  add("owner.device", "--device", "auto, cpu or cuda").text = &c.device;
  add("owner.threads", "--threads", "compute threads per owner; 0: cores / owners").integer =
      &c.threads;
  add("owner.idle_poll_us", "--idle-poll-us", "sleep of an idle owner").integer = &c.idle_poll_us;
  add("timeouts.startup_s", "--startup-timeout", "until every rank said hello").number =
      &c.startup_s;
  add("timeouts.attach_s", "--attach-timeout", "until every trainer is ready").number = &c.attach_s;
  add("timeouts.step_s", "--step-timeout", "for one step").number = &c.step_s;
  add("timeouts.heartbeat_s", "--heartbeat-timeout", "silence of a lost owner").number =
      &c.heartbeat_s;
  add("plan.bucket_mib", "--bucket-mib", "bucket size limit in MiB").long_integer = &c.bucket_mib;
  add("plan.profile", "--profile", "cost profile: shipped name or file; else useful flops").text =
      &c.profile;
  add("plan.profile_entry", "--profile-entry", "device of a tuning file, by its key").text =
      &c.profile_entry;
  add("plan.link_gbytes_per_s", "--link-gbytes-per-s", "of an owner's link; 0: not counted")
      .number = &c.link_gbytes_per_s;
  add("plan.memory_gib", "--memory-gib", "of an owner's state and buckets; 0: no limit").number =
      &c.memory_gib;
  add("plan.solver_s", "--solver-seconds", "limit of the plan's solver").number = &c.solver_s;
  add("plan.solver_nodes", "--solver-nodes", "limit of each integer program").integer =
      &c.solver_nodes;
  add("session.exit_after_session", "--exit-after-session", "leave when the first session ends")
      .boolean = &c.exit_after_session;
  add("log.level", "--log-level", "trace, debug, info, warn or error").text = &c.log_level;
  return options;
}

[[noreturn]] void RefuseKind(const Option& option, const toml::node& node, const char* kind) {
  std::ostringstream text;
  text << option.key << ": " << toml::node_view<const toml::node>(node) << " is not " << kind;
  throw ConfigError(text.str());
}

int64_t IntegerOf(const Option& option, const toml::node& node) {
  if (!node.is_integer()) RefuseKind(option, node, "an integer");
  return node.as_integer()->get();
}

void Assign(const Option& option, const toml::node& node) {
  if (option.text != nullptr) {
    if (!node.is_string()) RefuseKind(option, node, "a string");
    *option.text = node.as_string()->get();
  }
  if (option.number != nullptr) {
    if (!node.is_number()) RefuseKind(option, node, "a number");
    *option.number = *node.value<double>();
  }
  if (option.boolean != nullptr) {
    if (!node.is_boolean()) RefuseKind(option, node, "true or false");
    *option.boolean = node.as_boolean()->get();
  }
  if (option.long_integer != nullptr) *option.long_integer = IntegerOf(option, node);
  if (option.integer != nullptr) {
    int64_t value = IntegerOf(option, node);
    if (value < INT32_MIN || value > INT32_MAX) {
      throw ConfigError(option.key + ": " + std::to_string(value) + " is out of range");
    }
    *option.integer = static_cast<int>(value);
  }
}

void ReadFile(const std::string& path, const std::vector<Option>& options) {
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    std::ostringstream text;
    text << path << ": " << error.description() << " (line " << error.source().begin.line << ")";
    throw ConfigError(text.str());
  }
  for (const auto& [section, content] : table) {
    std::string prefix(section.str());
    const toml::table* entries = content.as_table();
    if (entries == nullptr) {
      throw ConfigError(fmt::format("{}: unknown key `{}`: keys stand in sections", path, prefix));
    }
    bool known = std::any_of(options.begin(), options.end(),
                             [&](const Option& o) { return o.key.rfind(prefix + ".", 0) == 0; });
    if (entries->empty() && !known) {
      throw ConfigError(
          fmt::format("{}: unknown section `{}`; see dmuond --help for the keys", path, prefix));
    }
    for (const auto& [name, node] : *entries) {
      std::string key = prefix + "." + std::string(name.str());
      auto option = std::find_if(options.begin(), options.end(),
                                 [&](const Option& o) { return o.key == key; });
      if (option == options.end()) {
        throw ConfigError(
            fmt::format("{}: unknown key `{}`; see dmuond --help for the keys", path, key));
      }
      Assign(*option, node);
    }
  }
}

void RequirePositive(const std::string& key, double value) {
  if (!(value > 0) || !std::isfinite(value)) {
    std::ostringstream text;
    text << key << ": " << value << " is not a positive number of seconds";
    throw ConfigError(text.str());
  }
}

void RequireNotNegative(const std::string& key, double value) {
  if (!(value >= 0) || !(value <= 1e6)) {
    std::ostringstream text;
    text << key << ": " << value << " is not between 0 and 1e6";
    throw ConfigError(text.str());
  }
}

// Refuses here, before MPI starts, a profile that owner 0 would trip over.
void CheckProfile(const Config& c) {
  if (c.profile.empty()) {
    if (!c.profile_entry.empty()) {
      throw ConfigError("plan.profile_entry: \"" + c.profile_entry +
                        "\" is an entry of plan.profile, which is missing");
    }
    return;
  }
  try {
    scheduler::LoadCostProfile(c.profile, c.profile_entry);
  } catch (const scheduler::ProfileError& error) {
    throw ConfigError(std::string("plan.profile: ") + error.what());
  }
}

void RequireOneOf(const std::string& key, const std::string& value,
                  const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string list;
  for (const std::string& word : allowed) list += (list.empty() ? "" : ", ") + word;
  throw ConfigError(key + ": \"" + value + "\" is not one of " + list);
}

void RequireBetween(const std::string& key, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw ConfigError(key + ": " + std::to_string(value) + " is not between " + std::to_string(low) +
                    " and " + std::to_string(high));
}

void Validate(const Config& c) {
  SocketPath(c.address);
  RequireOneOf("owner.device", c.device, {"auto", "cpu", "cuda"});
  RequireBetween("owner.threads", c.threads, 0, 4096);
  RequireBetween("owner.idle_poll_us", c.idle_poll_us, 0, 1000000);
  RequirePositive("timeouts.startup_s", c.startup_s);
  RequirePositive("timeouts.attach_s", c.attach_s);
  RequirePositive("timeouts.step_s", c.step_s);
  RequirePositive("timeouts.heartbeat_s", c.heartbeat_s);
  RequireBetween("plan.bucket_mib", c.bucket_mib, 1, 1 << 20);
  RequireNotNegative("plan.link_gbytes_per_s", c.link_gbytes_per_s);
  RequireNotNegative("plan.memory_gib", c.memory_gib);
  RequirePositive("plan.solver_s", c.solver_s);
  RequireBetween("plan.solver_nodes", c.solver_nodes, 1, 100000000);
  CheckProfile(c);
  RequireOneOf("log.level", c.log_level, {"trace", "debug", "info", "warn", "error"});
}

// Registers `option` as a flag that writes to `into`.
void AddFlag(CLI::App& app, const Option& option) {
  std::string help = option.help + " [" + option.key + "]";
  if (option.text != nullptr) app.add_option(option.flag, *option.text, help);
  if (option.number != nullptr) app.add_option(option.flag, *option.number, help);
  if (option.integer != nullptr) app.add_option(option.flag, *option.integer, help);
  if (option.long_integer != nullptr) app.add_option(option.flag, *option.long_integer, help);
  if (option.boolean != nullptr) app.add_flag(option.flag, *option.boolean, help);
}

}  // namespace

std::string SocketPath(const std::string& address) {
  const std::string scheme = "unix:";
  if (address.rfind(scheme, 0) != 0) {
    throw ConfigError("control.address: \"" + address + "\" is not unix:/absolute/path");
  }
  std::string path = address.substr(scheme.size());
  if (path.rfind('/', 0) != 0 || path.size() == 1) {
    throw ConfigError("control.address: \"" + address + "\": the path must be absolute");
  }
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    throw ConfigError("control.address: \"" + address + "\": a socket path has at most " +
                      std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes, this one has " +
                      std::to_string(path.size()));
  }
  return path;
}

CommandLine ParseCommandLine(const std::vector<std::string>& arguments) {
  CommandLine line;
  line.config.address = "unix:/tmp/dmuond-" + std::to_string(getuid()) + ".sock";

  // Flags are read twice: once to find --config, once on top of what the file says.
  for (int pass = 0; pass < 2; ++pass) {
    CLI::App app{"DMuon daemon: one owner process; start several with mpirun or srun", "dmuond"};
    std::string file;
    app.add_option("--config", file, "TOML file; flags win over it");
    app.add_flag("--check-config", line.check_config, "check the configuration and leave");
    app.add_flag("--version", line.version, "print the version and leave");
    Config scratch;
    std::vector<Option> options = OptionsOf(pass == 0 ? scratch : line.config);
    for (const Option& option : options) AddFlag(app, option);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
      app.parse(reversed);
    } catch (const CLI::CallForHelp&) {
      line.help = app.help();
      return line;
    } catch (const CLI::ParseError& error) {
      throw ConfigError(std::string("command line: ") + error.what());
    }
    if (pass == 0 && !file.empty()) ReadFile(file, OptionsOf(line.config));
  }
  Validate(line.config);
  return line;
}

}  // namespace dmuon
