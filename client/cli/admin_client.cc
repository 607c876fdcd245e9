#include "client/cli/admin_client.h"

#include <grpcpp/grpcpp.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace dmuon::cli {
namespace {

constexpr std::chrono::seconds kDeadline{10};

// gRPC's own texts can be long and span lines.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::unique_ptr<grpc::ClientContext> MakeContext() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + kDeadline);
  return context;
}

}  // namespace

std::string DefaultAddress() { return "unix:/tmp/dmuond-" + std::to_string(getuid()) + ".sock"; }

void AddAddressOption(CLI::App* command, std::string* address) {
  *address = DefaultAddress();
  command->add_option("--address", *address, "where dmuond listens: unix:PATH")
      ->capture_default_str();
}

AdminClient::AdminClient(const std::string& address) : address_(address) {
  const std::string scheme = "unix:";
  const size_t longest = sizeof(sockaddr_un{}.sun_path) - 1;
  if (address.compare(0, scheme.size(), scheme) != 0 || address.size() == scheme.size() ||
      address.size() - scheme.size() > longest) {
    throw InputError("--address: '" + address + "' is not unix:PATH with a path of at most " +
                     std::to_string(longest) + " bytes");
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a proxy would capture the socket
  arguments.SetMaxReceiveMessageSize(-1);           // thousands of owners
  stub_ = v1::Admin::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

v1::StatusReply AdminClient::Status() {
  v1::StatusReply reply;
  Check(stub_->Status(MakeContext().get(), v1::StatusRequest(), &reply));
  return reply;
}

void AdminClient::Drain() {
  v1::DrainReply reply;
  Check(stub_->Drain(MakeContext().get(), v1::DrainRequest(), &reply));
}

void AdminClient::Check(const grpc::Status& status) const {
  if (status.ok()) {
    return;
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    throw std::runtime_error("no dmuond answers at " + address_ + " (" +
                             OneLine(status.error_message()) +
                             "); start one, or name its socket with --address");
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    throw std::runtime_error("dmuond at " + address_ + " gave no answer within " +
                             std::to_string(kDeadline.count()) +
                             " s; it may be stopped or overloaded");
  }
  throw std::runtime_error("dmuond at " + address_ + ": " + OneLine(status.error_message()));
}

}  // namespace dmuon::cli
