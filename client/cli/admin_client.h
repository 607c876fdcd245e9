// Calls of the Admin service of a running dmuond.
#pragma once

#include <memory>
#include <string>

#include "client/cli/command.h"
#include "dmuon/v1/admin.grpc.pb.h"

namespace dmuon::cli {

// unix:/tmp/dmuond-<uid>.sock, which is the daemon's default too.
std::string DefaultAddress();

// Adds --address.
void AddAddressOption(CLI::App* command, std::string* address);

class AdminClient {
 public:
  // Throws InputError for an address that is not unix:PATH.
  explicit AdminClient(const std::string& address);

  // Throw std::runtime_error with one line: nobody listens, no answer in time, the call refused.
  v1::StatusReply Status();
  void Drain();

 private:
  void Check(const grpc::Status& status) const;

  std::string address_;
  std::unique_ptr<v1::Admin::Stub> stub_;
};

}  // namespace dmuon::cli
