#include "daemon/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/daemon/expect_text.h"

namespace dmuon {
namespace {

// A configuration file that is gone with the object.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) {
    path_ = testing::TempDir() + "dmuon-config-XXXXXX";
    close(mkstemp(path_.data()));
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { unlink(path_.c_str()); }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The one line with which `arguments` are refused.
std::string Refusal(const std::vector<std::string>& arguments) {
  try {
    ParseCommandLine(arguments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

std::string FileRefusal(const std::string& text) {
  ConfigFile file(text);
  return Refusal({"--config", file.path()});
}

TEST(Config, StartsFromDefaults) {
  Config config = ParseCommandLine({}).config;
  EXPECT_EQ(config.address, "unix:/tmp/dmuond-" + std::to_string(getuid()) + ".sock");
  EXPECT_EQ(config.device, "auto");
  EXPECT_EQ(config.step_s, 300);
  EXPECT_EQ(config.tuning, "");
  EXPECT_FALSE(config.batched);
  EXPECT_EQ(config.bucket_mib, 32);
  EXPECT_FALSE(config.exit_after_session);
}

TEST(Config, ReadsEveryKeyOfTheFile) {
  ConfigFile file(R"(
[control]
address = "unix:/run/d.sock"
[owner]
device = "cpu"
threads = 3
idle_poll_us = 250
[timeouts]
startup_s = 11
attach_s = 12.5
step_s = 13
heartbeat_s = 14
[kernels]
tuning = "/var/t.json"
batched = true
[plan]
bucket_mib = 7
profile = "a800"
link_gbytes_per_s = 25
memory_gib = 70.5
solver_s = 2
solver_nodes = 99
[session]
exit_after_session = true
[log]
level = "debug"
)");
  Config config = ParseCommandLine({"--config", file.path()}).config;
  EXPECT_EQ(config.address, "unix:/run/d.sock");
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.threads, 3);
  EXPECT_EQ(config.idle_poll_us, 250);
  EXPECT_EQ(config.startup_s, 11);
  EXPECT_EQ(config.attach_s, 12.5);
  EXPECT_EQ(config.step_s, 13);
  EXPECT_EQ(config.heartbeat_s, 14);
  EXPECT_EQ(config.tuning, "/var/t.json");
  EXPECT_TRUE(config.batched);
  EXPECT_EQ(config.bucket_mib, 7);
  EXPECT_EQ(config.profile, "a800");
  EXPECT_EQ(config.link_gbytes_per_s, 25);
  EXPECT_EQ(config.memory_gib, 70.5);
  EXPECT_EQ(config.solver_s, 2);
  EXPECT_EQ(config.solver_nodes, 99);
  EXPECT_TRUE(config.exit_after_session);
  EXPECT_EQ(config.log_level, "debug");
}

TEST(Config, FlagsWinOverTheFile) {
  ConfigFile file("[timeouts]\nstep_s = 13\nattach_s = 17\n[owner]\nthreads = 3\n");
  for (bool file_first : {true, false}) {
    std::vector<std::string> arguments{"--step-timeout", "5", "--threads", "2"};
    arguments.insert(file_first ? arguments.begin() : arguments.end(), {"--config", file.path()});
    Config config = ParseCommandLine(arguments).config;
    EXPECT_EQ(config.step_s, 5);
    EXPECT_EQ(config.threads, 2);
    EXPECT_EQ(config.attach_s, 17);  // only the file says it
  }
}

TEST(Config, FlagsWinEvenWithTheDefaultValue) {
  ConfigFile file("[timeouts]\nstep_s = 13\n");
  EXPECT_EQ(ParseCommandLine({"--config", file.path(), "--step-timeout", "300"}).config.step_s,
            300);
}

TEST(Config, RefusesUnknownKeys) {
  test::ExpectNames(FileRefusal("[timeouts]\nstep = 3\n"), {"unknown key", "timeouts.step"});
  test::ExpectNames(FileRefusal("[timeoutz]\nstep_s = 3\n"), {"unknown key", "timeoutz.step_s"});
  test::ExpectNames(FileRefusal("[kernels]\ntuned = \"x\"\n"), {"unknown key", "kernels.tuned"});
  test::ExpectNames(FileRefusal("step_s = 3\n"), {"unknown key", "step_s", "sections"});
  test::ExpectNames(FileRefusal("[owner.cpu]\nthreads = 3\n"), {"unknown key", "owner.cpu"});
}

// A misspelt section is refused also while nothing stands in it.
TEST(Config, RefusesUnknownSectionsWithoutKeys) {
  test::ExpectNames(FileRefusal("[timeoutz]\n"), {"unknown", "timeoutz"});
}

TEST(Config, RefusesFilesThatDoNotParse) {
  test::ExpectNames(FileRefusal("[timeouts]\nstep_s = = 3\n"), {"line 2"});
  test::ExpectNames(Refusal({"--config", "/nonexistent/d.toml"}), {"/nonexistent/d.toml"});
}

TEST(Config, RefusesWrongTypes) {
  test::ExpectNames(FileRefusal("[timeouts]\nstep_s = \"long\"\n"),
                    {"timeouts.step_s", "long", "not a number"});
  test::ExpectNames(FileRefusal("[owner]\nthreads = 2.5\n"),
                    {"owner.threads", "2.5", "not an integer"});
  test::ExpectNames(FileRefusal("[owner]\nthreads = [1, 2]\n"),
                    {"owner.threads", "not an integer"});
  test::ExpectNames(FileRefusal("[control]\naddress = 5\n"),
                    {"control.address", "5", "not a string"});
  test::ExpectNames(FileRefusal("[session]\nexit_after_session = \"yes\"\n"),
                    {"session.exit_after_session", "yes", "not true or false"});
}

TEST(Config, RefusesNumbersForSwitchesAndSwitchesForNumbers) {
  test::ExpectNames(FileRefusal("[session]\nexit_after_session = 1\n"),
                    {"session.exit_after_session", "1", "not true or false"});
  test::ExpectNames(FileRefusal("[owner]\nthreads = true\n"),
                    {"owner.threads", "true", "not an integer"});
  test::ExpectNames(FileRefusal("[timeouts]\nstep_s = true\n"),
                    {"timeouts.step_s", "true", "not a number"});
}

TEST(Config, RefusesTimeoutsThatAreNotPositive) {
  for (const std::string key : {"startup_s", "attach_s", "step_s", "heartbeat_s"}) {
    test::ExpectNames(FileRefusal("[timeouts]\n" + key + " = -1\n"), {"timeouts." + key, "-1"});
    test::ExpectNames(FileRefusal("[timeouts]\n" + key + " = 0\n"), {"timeouts." + key, "0"});
    test::ExpectNames(FileRefusal("[timeouts]\n" + key + " = inf\n"), {"timeouts." + key, "inf"});
    test::ExpectNames(FileRefusal("[timeouts]\n" + key + " = nan\n"), {"timeouts." + key, "nan"});
  }
  test::ExpectNames(Refusal({"--step-timeout=-2"}), {"timeouts.step_s", "-2"});
}

TEST(Config, RefusesValuesOutOfRange) {
  test::ExpectNames(Refusal({"--device", "gpu"}), {"owner.device", "gpu", "auto, cpu, cuda"});
  test::ExpectNames(Refusal({"--log-level", "loud"}), {"log.level", "loud", "warn"});
  test::ExpectNames(Refusal({"--threads=-1"}), {"owner.threads", "-1", "0 and 4096"});
  test::ExpectNames(Refusal({"--bucket-mib", "0"}), {"plan.bucket_mib", "0"});
  test::ExpectNames(Refusal({"--memory-gib=-1"}), {"plan.memory_gib", "-1"});
  test::ExpectNames(Refusal({"--solver-seconds", "0"}), {"plan.solver_s", "0"});
  test::ExpectNames(Refusal({"--profile", "a900"}), {"plan.profile", "a900", "a800"});
  test::ExpectNames(Refusal({"--profile-entry", "gpu"}), {"plan.profile_entry", "gpu"});
  test::ExpectNames(FileRefusal("[owner]\nthreads = 9999999999\n"),
                    {"owner.threads", "9999999999", "out of range"});
}

TEST(Config, RefusesBadAddresses) {
  test::ExpectNames(Refusal({"--address", "unix:relative.sock"}),
                    {"control.address", "unix:relative.sock", "absolute"});
  test::ExpectNames(Refusal({"--address", "unix:/"}), {"control.address", "unix:/", "absolute"});
  test::ExpectNames(Refusal({"--address", "tcp://0.0.0.0:50051"}),
                    {"control.address", "tcp://0.0.0.0:50051", "unix:/absolute/path"});
  test::ExpectNames(Refusal({"--address", "/run/d.sock"}), {"control.address", "/run/d.sock"});
}

// sockaddr_un holds 107 bytes and a zero.
TEST(Config, SocketPathsFitASocketAddress) {
  std::string fits = "/" + std::string(106, 'a');
  EXPECT_EQ(SocketPath("unix:" + fits), fits);
  test::ExpectNames(Refusal({"--address", "unix:" + fits + "a"}),
                    {"control.address", "at most 107", "has 108"});
}

TEST(Config, RefusesUnknownFlags) {
  test::ExpectNames(Refusal({"--no-such-flag"}), {"command line", "no-such-flag"});
  test::ExpectNames(Refusal({"--threads", "many"}), {"command line", "many"});
  test::ExpectNames(Refusal({"stray"}), {"command line", "stray"});
}

TEST(Config, HelpNamesEveryFlagAndKey) {
  CommandLine line = ParseCommandLine({"--help"});
  ASSERT_TRUE(line.help.has_value());
  for (const char* word :
       {"--config", "--check-config", "--version", "--address", "--exit-after-session", "--tuning",
        "kernels.tuning", "timeouts.step_s", "plan.bucket_mib"}) {
    EXPECT_NE(line.help->find(word), std::string::npos) << word;
  }
}

TEST(Config, ReportsWhatTheCommandLineAsksFor) {
  EXPECT_FALSE(ParseCommandLine({}).version);
  EXPECT_FALSE(ParseCommandLine({}).check_config);
  EXPECT_FALSE(ParseCommandLine({}).help.has_value());
  EXPECT_TRUE(ParseCommandLine({"--version"}).version);
  EXPECT_TRUE(ParseCommandLine({"--check-config"}).check_config);
  // Checking includes everything that running would refuse.
  test::ExpectNames(Refusal({"--check-config", "--step-timeout=-1"}), {"timeouts.step_s"});
}

}  // namespace
}  // namespace dmuon
