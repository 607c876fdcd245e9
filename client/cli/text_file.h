// Small files that are read whole.
#pragma once

#include <string>

#include "proto/session_spec.h"

namespace dmuon::cli {

// Throws InputError naming file and cause: not there, not a regular file, too large.
std::string ReadTextFile(const std::string& path);

// Throws InputError with the file's name in front of what is wrong with the spec.
SessionSpec ReadSpecFile(const std::string& path);

}  // namespace dmuon::cli
