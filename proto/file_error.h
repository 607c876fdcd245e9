// How failed system calls on files are reported. Internal to proto/ and scheduler/.
#pragma once

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace dmuon {

// Throws std::runtime_error: the file, what could not be done, errno in words.
[[noreturn]] inline void FailWithErrno(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + ": " + what + ": " + std::strerror(errno));
}

}  // namespace dmuon
