// The one way to call MPI: a failure becomes an exception that names call and place.
#pragma once

#include <mpi.h>

#include <stdexcept>
#include <string>

namespace dmuon {

class MpiError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void CheckMpi(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw MpiError(std::string(call) + " failed at " + file + ":" + std::to_string(line) + ": " +
                 std::string(text, length));
}

}  // namespace dmuon

#define DMUON_MPI(call) ::dmuon::CheckMpi((call), #call, __FILE__, __LINE__)
