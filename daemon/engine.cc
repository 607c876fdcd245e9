#include "daemon/engine.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "daemon/transport/mpi_world.h"
#include "daemon/version.h"

namespace dmuon {
namespace {

constexpr auto kTickInterval = std::chrono::milliseconds(100);
constexpr auto kBusySleep = std::chrono::microseconds(50);  // while a step is in progress
constexpr double kLeaveLimit_s = 10;  // how long trainers may take to fetch the last parameters

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Owner 0 is silent while it plans: it must be back long before others take it for lost.
scheduler::PlanOptions PlanOptionsOf(const Config& config) {
  scheduler::PlanOptions options;
  options.bucket_bytes = config.bucket_mib << 20;
  if (!config.profile.empty()) {
    options.profile = scheduler::LoadCostProfile(config.profile, config.profile_entry);
  }
  options.link_bytes_per_s = config.link_gbytes_per_s * 1e9;
  options.memory_limit_bytes = static_cast<int64_t>(config.memory_gib * (int64_t{1} << 30));
  options.solver_seconds = std::min(config.solver_s, config.heartbeat_s / 2);
  options.solver_nodes = config.solver_nodes;
  return options;
}

}  // namespace

Engine::Engine(const Config& config, const MpiWorld& world, kernels::Device& device)
    : config_(config),
      world_(world),
      device_(device),
      own_(world.owner()),
      transport_(MakeMpiTransport(world, pool_)),
      worker_(std::make_unique<ComputeWorker>()),
      heartbeat_(own_, world.owners(), config.heartbeat_s, Clock::now()),
      statuses_(world.owners()),
      next_tick_(Clock::now()),
      next_heartbeat_(Clock::now()) {
  if (own_ == 0) {
    CoordinatorOptions options;
    options.step_timeout_s = config.step_s;
    options.attach_timeout_s = config.attach_s;
    options.plan = PlanOptionsOf(config);
    options.exit_after_session = config.exit_after_session;
    options.version = kVersion;
    coordinator_ = std::make_unique<Coordinator>(*this, options);
  }
  for (int owner = 0; owner < world.owners(); ++owner) {
    statuses_[owner].set_rank(owner);
    statuses_[owner].set_host(world.owner_info(owner).host);
    statuses_[owner].set_pid(world.owner_info(owner).pid);
  }
}

Engine::~Engine() {
  session_.reset();
  worker_.reset();  // before the inbox that its jobs post to
}

int Engine::Run() {
  auto idle = std::chrono::microseconds(config_.idle_poll_us);
  auto sleep = kBusySleep;
  while (!leaving_) {
    bool worked = inbox_.RunAll();
    worked |= transport_->Poll(*this);
    auto now = Clock::now();
    if (now >= next_tick_) Tick(now);
    if (worked) {
      sleep = kBusySleep;
      continue;
    }
    inbox_.WaitFor(step_active_ ? std::min(kBusySleep, idle) : std::min(sleep, idle));
    sleep = std::min(sleep * 2, std::max(idle, kBusySleep));
  }
  FinishSending();
  return exit_code_;
}

// What the last commit published still goes out: trainers are owed it.
void Engine::FinishSending() {
  auto deadline = Clock::now() + std::chrono::duration<double>(kLeaveLimit_s);
  bool worker_done = false;
  worker_->Post([this, &worker_done] { inbox_.Post([&worker_done] { worker_done = true; }); });
  while (!worker_done || !transport_->SendsDone() || !ingress_.Drained()) {
    inbox_.RunAll();
    transport_->Poll(*this);
    if (worker_done && Clock::now() > deadline) {
      spdlog::warn("trainers did not fetch the last parameters within {} s", kLeaveLimit_s);
      return;
    }
    inbox_.WaitFor(kBusySleep);
  }
}

void Engine::RequestDrain() {
  Submit("Drain", v1::DrainRequest().SerializeAsString(), [](const Status&, const std::string&) {});
}

std::string Engine::Pending() const {
  std::lock_guard lock(pending_mutex_);
  return pending_;
}

void Engine::Submit(std::string method, std::string request, Reply reply) {
  inbox_.Post([this, method = std::move(method), request = std::move(request),
               reply = std::move(reply)]() mutable {
    uint64_t id = next_call_++;
    calls_[id] = std::move(reply);
    v1::OwnerMessage message;
    message.mutable_call_request()->set_id(id);
    message.mutable_call_request()->set_method(std::move(method));
    message.mutable_call_request()->set_request(std::move(request));
    SendToCoordinator(message);
  });
}

void Engine::ForwardBucket(uint32_t owner, BucketPtr bucket) {
  inbox_.Post([this, owner, bucket = std::move(bucket)] {
    if (static_cast<int>(owner) == own_) {
      TakeBucket(bucket);
    } else {
      transport_->SendBucketToOwner(static_cast<int>(owner), bucket);
    }
  });
}

void Engine::OnOwnerMessage(int owner, const v1::OwnerMessage& message) {
  using Kind = v1::OwnerMessage;
  switch (message.kind_case()) {
    case Kind::kHeartbeat:
      return OnHeartbeat(owner, message.heartbeat());
    case Kind::kCallRequest:
      return OnCallRequest(owner, message.call_request());
    case Kind::kCallReply:
      return OnCallReply(message.call_reply());
    case Kind::kStartSession:
      return OnStartSession(message.start_session());
    case Kind::kEndSession:
      return OnEndSession(message.end_session());
    case Kind::kAddTrainer:
      return OnAddTrainer(message.add_trainer());
    case Kind::kAskMissing:
      return OnAskMissing(message.ask_missing());
    case Kind::kRemoveTrainer:
      if (session_) session_->RemoveTrainer(message.remove_trainer().trainer());
      ingress_.RemoveTrainer(message.remove_trainer().trainer());
      return;
    case Kind::kStartStep:
      step_ = message.start_step().step();
      step_active_ = true;
      ingress_.StartStep(message.start_step().generation());
      if (session_) session_->StartStep(message.start_step());
      return;
    case Kind::kAllSealed:
      if (session_) session_->Seal(message.all_sealed());
      return;
    case Kind::kClipFactor:
      if (session_) session_->Clip(message.clip_factor());
      return;
    case Kind::kFinishStep:
      step_active_ = false;
      ingress_.FinishStep(message.finish_step().generation());
      if (session_) session_->Finish(message.finish_step());
      return;
    case Kind::kShutdown:
      exit_code_ = message.shutdown().failed() ? 1 : 0;
      leaving_ = true;
      spdlog::info("leaving: {}", message.shutdown().reason());
      return;
    default:
      if (coordinator_) coordinator_->OnOwnerMessage(owner, message);
  }
}

void Engine::OnCallRequest(int owner, const v1::CallRequest& message) {
  coordinator_->Handle(
      message.method(), message.request(), owner,
      [this, owner, id = message.id()](const Status& status, const std::string& bytes) {
        v1::OwnerMessage answer;
        v1::CallReply& reply = *answer.mutable_call_reply();
        reply.set_id(id);
        reply.set_code(static_cast<int>(status.code()));
        reply.set_message(status.message());
        reply.set_reply(bytes);
        transport_->SendToOwner(owner, answer);
      });
}

void Engine::OnCallReply(const v1::CallReply& message) {
  auto call = calls_.find(message.id());
  if (call == calls_.end()) return;
  Reply reply = std::move(call->second);
  calls_.erase(call);
  Status status;
  if (message.code() != 0) {
    status = Status(static_cast<StatusCode>(message.code()), message.message());
  }
  reply(status, message.reply());
}

void Engine::OnStartSession(const v1::StartSession& message) {
  std::string error;
  try {
    session_ = std::make_unique<OwnerSession>(
        OwnerSession::Environment{static_cast<uint32_t>(own_), &device_, worker_.get(), &inbox_,
                                  &pool_, this},
        message);
  } catch (const std::exception& exception) {
    error = "owner " + std::to_string(own_) + ": " + exception.what();
  }
  Acknowledge(message.request(), error);
}

void Engine::OnEndSession(const v1::EndSession& message) {
  if (session_ && session_->id() == message.session()) session_.reset();
  ingress_.EndSession(message.reason());
  pool_.Clear();
  step_active_ = false;
}

void Engine::OnAddTrainer(const v1::AddTrainer& message) {
  if (!session_) return;
  session_->AddTrainer(message);
  int64_t largest = sizeof(BucketHeader);
  for (uint32_t trainer = 0; trainer < session_->trainer_count(); ++trainer) {
    largest = std::max(largest, session_->trainer(trainer).layout.LargestMessageBytes());
  }
  transport_->SetMaxBucketBytes(largest);
  if (static_cast<int>(message.ingress()) == own_) {
    ingress_.AddTrainer(message.session(), message.trainer(),
                        session_->trainer(message.trainer()).layout, session_->generation());
  }
  Acknowledge(message.request(), "");
}

void Engine::Acknowledge(uint64_t request, const std::string& error) {
  v1::OwnerMessage message;
  message.mutable_acknowledge()->set_request(request);
  message.mutable_acknowledge()->set_error(error);
  SendToCoordinator(message);
}

void Engine::OnAskMissing(const v1::AskMissing& message) {
  v1::OwnerMessage answer;
  answer.mutable_missing()->set_request(message.request());
  if (session_) {
    for (v1::MissingFromTrainer& entry : session_->Missing()) {
      *answer.mutable_missing()->add_trainers() = std::move(entry);
    }
  }
  SendToCoordinator(answer);
}

void Engine::OnHeartbeat(int owner, const v1::Heartbeat& message) {
  heartbeat_.Hear(owner, Clock::now());
  statuses_[owner] = message.status();
}

void Engine::OnTrainerBucket(int world_rank, BucketPtr bucket) {
  BucketHeader header = bucket->header();
  bool known = session_ && header.session == session_->id() &&
               header.trainer < session_->trainer_count() &&
               session_->trainer(header.trainer).mpi_rank == world_rank;
  if (!session_ || header.session < session_->id()) return;  // of a session that has ended
  if (!known) {
    spdlog::error("dropped a bucket from MPI rank {}: it is not trainer {} of session {}",
                  world_rank, header.trainer, header.session);
    return;
  }
  TakeBucket(std::move(bucket));
}

void Engine::OnTrainerGarbage(int world_rank, const std::string& what) {
  for (uint32_t trainer = 0; session_ && trainer < session_->trainer_count(); ++trainer) {
    if (session_->trainer(trainer).mpi_rank != world_rank) continue;
    BucketHeader header;
    header.session = session_->id();
    header.trainer = trainer;
    header.generation = session_->generation();
    ReportDataError(header, false, "trainer " + std::to_string(trainer) + " pushed " + what);
    return;
  }
  spdlog::error("dropped {} from MPI rank {}, which is no trainer of a session", what, world_rank);
}

void Engine::OnOwnerBucket(int, BucketPtr bucket) {
  if (bucket->header().kind == static_cast<uint8_t>(BucketKind::kPublished)) {
    ingress_.Deliver(std::move(bucket));
  } else {
    TakeBucket(std::move(bucket));
  }
}

void Engine::TakeBucket(BucketPtr bucket) {
  BucketHeader header = bucket->header();
  if (!session_ || header.session != session_->id()) return;  // the session ended meanwhile
  bool stale = false;
  Status status = session_->TakeBucket(std::move(bucket), &stale);
  if (!status.ok()) ReportDataError(header, stale, status.message());
}

void Engine::ReportDataError(const BucketHeader& header, bool stale, const std::string& message) {
  SendToCoordinator(OwnerSession::DataErrorOf(header, stale, message));
}

void Engine::SendToCoordinator(const v1::OwnerMessage& message) {
  transport_->SendToOwner(0, message);
}

void Engine::SendToTrainer(const TrainerInfo& trainer, BucketPtr bucket) {
  if (trainer.channel == v1::CHANNEL_MPI) {
    transport_->SendBucketToTrainer(trainer.mpi_rank, std::move(bucket));
  } else if (static_cast<int>(trainer.ingress) == own_) {
    ingress_.Deliver(std::move(bucket));
  } else {
    transport_->SendBucketToOwner(static_cast<int>(trainer.ingress), std::move(bucket));
  }
}

void Engine::Broadcast(const v1::OwnerMessage& message) {
  for (int owner = 0; owner < owner_count(); ++owner) transport_->SendToOwner(owner, message);
}

int Engine::owner_count() const { return world_.owners(); }

int Engine::world_rank_of_owner(int owner) const { return world_.world_rank_of_owner(owner); }

bool Engine::is_trainer_rank(int world_rank) const {
  return world_rank >= 0 && world_rank < static_cast<int>(world_.ranks().size()) &&
         world_.ranks()[world_rank].role == Role::kTrainer;
}

std::vector<v1::OwnerStatus> Engine::owner_statuses() const {
  std::vector<v1::OwnerStatus> statuses = statuses_;
  statuses[own_] = OwnStatus();
  auto now = Clock::now();
  for (int owner = 0; owner < owner_count(); ++owner) {
    statuses[owner].set_heartbeat_age_s(heartbeat_.AgeOf(owner, now));
  }
  return statuses;
}

v1::OwnerStatus Engine::OwnStatus() const {
  v1::OwnerStatus status;
  status.set_rank(own_);
  status.set_host(world_.owner_info(own_).host);
  status.set_pid(world_.owner_info(own_).pid);
  status.set_device(device_.Describe());
  status.set_resident_bytes(ResidentBytes());
  if (session_) {
    status.set_matrices(session_->matrices());
    status.set_elements(session_->elements());
    status.set_busy_s(session_->busy_s());
  }
  return status;
}

void Engine::Tick(Clock::time_point now) {
  next_tick_ = now + kTickInterval;
  if (coordinator_) coordinator_->Tick(now);
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + Heartbeat::kInterval;
    SendHeartbeats();
  }
  std::string pending =
      coordinator_ ? coordinator_->WaitingFor()
      : !session_  ? "no session"
                   : "step " + std::to_string(step_) + (step_active_ ? " in progress" : " done");
  {
    std::lock_guard lock(pending_mutex_);
    pending_ = pending;
  }
  if (auto lost = heartbeat_.FindLost(now)) {
    const RankInfo& info = world_.owner_info(*lost);
    throw std::runtime_error(fmt::format(
        "owner {} (pid {} on {}) has been silent for {:.6g} s and counts as lost; pending: {}; "
        "the job ends: look at that host, then start the job again",
        *lost, info.pid, info.host, config_.heartbeat_s, pending));
  }
}

void Engine::SendHeartbeats() {
  v1::OwnerMessage message;
  *message.mutable_heartbeat()->mutable_status() = OwnStatus();
  if (own_ != 0) return SendToCoordinator(message);
  for (int owner = 1; owner < owner_count(); ++owner) transport_->SendToOwner(owner, message);
}

}  // namespace dmuon
