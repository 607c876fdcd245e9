#include "daemon/last_words.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/daemon/expect_text.h"

namespace dmuon {
namespace {

// Runs three owners under mpirun, the second of which kills itself. Returns what they wrote.
std::string RunJob(int* status) {
  std::string command = std::string(DMUON_MPIEXEC) + " --oversubscribe --bind-to none";
  if (geteuid() == 0) command += " --allow-run-as-root";
  command += std::string(" -np 3 ") + DMUON_LAST_WORDS_JOB + " 2>/dev/null";
  FILE* job = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  while (size_t size = fread(buffer, 1, sizeof(buffer), job)) output.append(buffer, size);
  *status = pclose(job);
  return output;
}

std::string LineAfter(const std::string& text, const std::string& start) {
  size_t begin = text.find(start);
  if (begin == std::string::npos) return "no line with \"" + start + "\" in " + text;
  begin += start.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(LastWords, NameTheOwnerThatWasKilled) {
  int status = 0;
  std::string output = RunJob(&status);
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);

  test::ExpectNames(
      LineAfter(output, "before: "),
      {"aborting", "signal 15", "nobody on this host is gone", "pending: step 7, idle"});
  std::string killed = "owner 1 (pid " + LineAfter(output, "owner 1 is pid ") + " on " + host + ")";
  std::string after = LineAfter(output, "after: ");
  test::ExpectNames(after, {"aborting", "lost " + killed + ", then owner 2 (pid ",
                            "pending: step 7, waiting for owner 1", "nothing"});
}

}  // namespace
}  // namespace dmuon
