#include "daemon/control/control_server.h"

#include <grpcpp/generic/generic_stub.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <fstream>
#include <future>

#include "daemon/control/services.h"
#include "tests/daemon/bucket_support.h"
#include "tests/daemon/control_support.h"
#include "tests/daemon/expect_text.h"

namespace dmuon {
namespace {

using ControlServerTest = test::ControlTest;
using test::ExpectNames;

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  (void)buffer.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// The first answer to one message, in bytes: what any client in any language would see.
std::string FirstAnswer(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                        const std::string& request) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  if (!next()) return "no call";
  grpc::Slice slice(request);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  if (!next()) return "no write";
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  if (!next()) return "no answer";
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  return BytesOf(answer);
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

// A socket file that nobody listens on any more, as a killed owner leaves it.
void LeaveStaleSocket(const std::string& path) {
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = AddressOf(path);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  close(listener);
}

std::string RefusalAt(const std::string& path, ControlPort& port) {
  try {
    ControlServer server(path, port);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "not refused";
}

TEST_F(ControlServerTest, SocketIsForTheUserAndGoesWithTheServer) {
  Start();
  struct stat info {};
  ASSERT_EQ(lstat(path_.c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  mode_t mask = umask(0);
  umask(mask);
  EXPECT_NE(mask, 0177U);  // files that the process makes later are not affected
  server_.reset();
  EXPECT_NE(lstat(path_.c_str(), &info), 0);
}

TEST_F(ControlServerTest, StaleSocketIsReplaced) {
  LeaveStaleSocket(path_);
  Start();
  EXPECT_EQ(FirstAnswer(channel_, "/grpc.health.v1.Health/Check", ""), "\x08\x01");
}

TEST_F(ControlServerTest, LiveSocketIsRefusedAndLeftAlone) {
  Start();
  ExpectNames(RefusalAt(path_, port_), {"control.address", path_, "another dmuond listens"});
  EXPECT_EQ(FirstAnswer(channel_, "/grpc.health.v1.Health/Check", ""), "\x08\x01");
}

TEST_F(ControlServerTest, OtherFilesAreRefusedAndLeftAlone) {
  std::ofstream(path_) << "precious";
  ExpectNames(RefusalAt(path_, port_), {"control.address", path_, "not a socket"});
  std::string content;
  std::ifstream(path_) >> content;
  EXPECT_EQ(content, "precious");
}

TEST_F(ControlServerTest, MissingFolderIsNamed) {
  ExpectNames(RefusalAt(folder_ + "/no/d.sock", port_),
              {"control.address", folder_ + "/no/d.sock", "No such file"});
}

// Even with the file open to all. gRPC would greet with a settings frame; the server just hangs up.
TEST_F(ControlServerTest, OtherUsersAreTurnedAway) {
  if (geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  Start();
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    sockaddr_un address = AddressOf(path_);
    int connection = socket(AF_UNIX, SOCK_STREAM, 0);
    char byte = 0;
    if (setuid(kNobody) != 0) _exit(3);
    if (connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) _exit(4);
    _exit(read(connection, &byte, 1) == 0 ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(FirstAnswer(channel_, "/grpc.health.v1.Health/Check", ""), "\x08\x01");  // ours is not
}

// HealthCheckResponse{status: SERVING} is field 1, value 1.
TEST_F(ControlServerTest, AnswersHealthChecks) {
  Start();
  EXPECT_EQ(FirstAnswer(channel_, "/grpc.health.v1.Health/Check", ""), "\x08\x01");
}

// ServerReflectionRequest{list_services: "*"} is field 7.
TEST_F(ControlServerTest, AnswersReflection) {
  Start();
  std::string services = FirstAnswer(
      channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "\x3a\x01*");
  for (const char* name : {"dmuon.v1.Control", "dmuon.v1.Data", "dmuon.v1.Admin"}) {
    EXPECT_NE(services.find(name), std::string::npos) << name;
  }
}

TEST_F(ControlServerTest, RelaysCallsAndAnswers) {
  Start();
  auto stub = v1::Control::NewStub(channel_);
  v1::BeginStepRequest request;
  request.set_session(3);
  request.set_trainer(1);
  request.set_step(17);
  v1::BeginStepReply reply;
  grpc::ClientContext context;
  auto call =
      std::async(std::launch::async, [&] { return stub->BeginStep(&context, request, &reply); });
  auto submitted = port_.Next();
  EXPECT_EQ(submitted.method, "BeginStep");
  EXPECT_EQ(submitted.request, request.SerializeAsString());
  v1::BeginStepReply answer;
  answer.set_generation(23);
  Answer(submitted.reply, answer);
  grpc::Status status = call.get();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.generation(), 23U);
}

TEST_F(ControlServerTest, RelaysErrorsWithTheirCode) {
  Start();
  auto stub = v1::Admin::NewStub(channel_);
  for (StatusCode code :
       {StatusCode::kInvalidArgument, StatusCode::kNotFound, StatusCode::kFailedPrecondition,
        StatusCode::kDeadlineExceeded, StatusCode::kAborted, StatusCode::kAlreadyExists}) {
    v1::StatusReply reply;
    grpc::ClientContext context;
    auto call = std::async(std::launch::async,
                           [&] { return stub->Status(&context, v1::StatusRequest(), &reply); });
    port_.Next().reply({code, "the reason"}, {});
    grpc::Status status = call.get();
    EXPECT_EQ(static_cast<int>(status.error_code()), static_cast<int>(code));
    EXPECT_EQ(status.error_message(), "the reason");
  }
}

// gRPC's numbers, stated once more.
TEST(ToGrpc, KeepsCodes) {
  EXPECT_EQ(ToGrpc({StatusCode::kCancelled, "x"}).error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(ToGrpc({StatusCode::kPermissionDenied, "x"}).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(ToGrpc({StatusCode::kResourceExhausted, "x"}).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ToGrpc({StatusCode::kUnimplemented, "x"}).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(ToGrpc({StatusCode::kInternal, "x"}).error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(ToGrpc({StatusCode::kUnavailable, "x"}).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(ToGrpc(Status::Ok()).ok());
}

TEST_F(ControlServerTest, CallsEndWhenTheServerGoes) {
  Start();
  auto stub = v1::Control::NewStub(channel_);
  grpc::ClientContext context;
  v1::WaitReadyReply reply;
  auto call = std::async(std::launch::async,
                         [&] { return stub->WaitReady(&context, v1::WaitReadyRequest(), &reply); });
  auto submitted = port_.Next();
  server_.reset();
  EXPECT_EQ(call.get().error_code(), grpc::StatusCode::UNAVAILABLE);
  submitted.reply(Status::Ok(), {});  // an answer that comes too late harms nobody
}

class HoldTest : public ControlServerTest {
 protected:
  void SetUp() override {
    Start();
    port_.ingress().AddTrainer(3, 1, {}, 0);
    request_.set_session(3);
    request_.set_trainer(1);
  }
  v1::HoldRequest request_;
  grpc::ClientContext context_;
  v1::HoldEvent event_;
};

TEST_F(HoldTest, ABrokenHoldIsALostTrainer) {
  auto stub = v1::Control::NewStub(channel_);
  auto hold = stub->Hold(&context_, request_);
  // A call that came later on the same connection was heard, so this one was as well.
  auto admin = v1::Admin::NewStub(channel_);
  grpc::ClientContext context;
  v1::StatusReply reply;
  auto call = std::async(std::launch::async,
                         [&] { return admin->Status(&context, v1::StatusRequest(), &reply); });
  Answer(port_.Next().reply, v1::StatusReply());
  ASSERT_TRUE(call.get().ok());

  context_.TryCancel();
  auto submitted = port_.Next();
  EXPECT_EQ(submitted.method, "TrainerLost");
  v1::DetachRequest lost;
  ASSERT_TRUE(lost.ParseFromString(submitted.request));
  EXPECT_EQ(lost.session(), 3U);
  EXPECT_EQ(lost.trainer(), 1U);
  EXPECT_FALSE(hold->Read(&event_));
}

TEST_F(HoldTest, EndsWithDetach) {
  auto stub = v1::Control::NewStub(channel_);
  auto hold = stub->Hold(&context_, request_);
  port_.ingress().RemoveTrainer(1);
  EXPECT_FALSE(hold->Read(&event_));
  EXPECT_TRUE(hold->Finish().ok());
}

TEST_F(HoldTest, TellsWhyTheSessionEnded) {
  auto stub = v1::Control::NewStub(channel_);
  auto hold = stub->Hold(&context_, request_);
  port_.ingress().EndSession("trainer 0 was lost");
  ASSERT_TRUE(hold->Read(&event_));
  EXPECT_EQ(event_.message(), "trainer 0 was lost");
  EXPECT_FALSE(hold->Read(&event_));
  EXPECT_TRUE(hold->Finish().ok());
}

}  // namespace
}  // namespace dmuon
