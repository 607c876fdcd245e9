#include "daemon/transport/job_files.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace dmuon {

void RemoveJobFiles() {
  std::ifstream maps("/proc/self/maps");
  const std::string folder = "/dev/shm/";
  for (std::string line; std::getline(maps, line);) {
    size_t path = line.find(folder);
    if (path != std::string::npos) unlink(line.c_str() + path);  // "... (deleted)" names no file
  }
}

}  // namespace dmuon
