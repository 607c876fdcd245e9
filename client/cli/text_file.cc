#include "client/cli/text_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/cli/command.h"

namespace dmuon::cli {
namespace {

constexpr std::streamsize kMaxBytes = std::streamsize{1} << 30;

}  // namespace

std::string ReadTextFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw InputError(path + ": is a directory, not a file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw InputError(path + ": cannot be opened: " + std::strerror(errno));
  }
  std::ostringstream text;
  text << file.rdbuf();
  if (static_cast<std::streamsize>(text.tellp()) > kMaxBytes) {
    throw InputError(path + ": is larger than 1 GiB");
  }
  return text.str();
}

SessionSpec ReadSpecFile(const std::string& path) {
  try {
    return ParseSessionSpec(ReadTextFile(path));
  } catch (const SpecError& error) {
    throw InputError(path + ": " + error.what());
  }
}

}  // namespace dmuon::cli
