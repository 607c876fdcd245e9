#include "daemon/owner/owner_session.h"

#include <chrono>
#include <stdexcept>
#include <utility>

#include "daemon/session/step_overrides.h"

namespace dmuon {
namespace {

constexpr size_t kMissingExamples = 4;  // parameter names per trainer in a report

// Not clipped: every gradient is multiplied by one.
constexpr double kNoClip = 1.0;

std::string CountKey(const scheduler::Piece& piece) {
  return std::string(NameOf(piece.muon.newton_schulz.form)) + "/" +
         std::string(NameOf(piece.muon.newton_schulz.precision));
}

}  // namespace

OwnerSession::OwnerSession(const Environment& environment, const v1::StartSession& start)
    : environment_(environment), id_(start.session()), core_(std::make_shared<Core>()) {
  core_->spec = ParseSessionSpec(start.spec_json());
  core_->plan = scheduler::ParsePlan(start.plan());
  std::string hash = scheduler::PlanHash(core_->plan);
  if (hash != start.plan_hash()) {
    throw std::invalid_argument("plan hash is " + hash + " on owner " +
                                std::to_string(environment.owner) + " and " + start.plan_hash() +
                                " on owner 0: install the same dmuond on all nodes");
  }
  trainers_.resize(start.trainers());
  MakeBatches();
  environment_.worker->Post([core = core_, device = environment_.device, pool = environment_.pool,
                             owner = environment_.owner] {
    core->worker = std::make_unique<StepWorker>(*device, *pool, core->spec, core->plan, owner);
  });
}

OwnerSession::~OwnerSession() {
  *alive_ = false;
  // Device memory is given back on the compute thread.
  environment_.worker->Post([core = std::move(core_)]() mutable { core.reset(); });
}

template <typename T>
void OwnerSession::Run(std::function<T(StepWorker&)> job,
                       std::function<void(T, double busy_s)> done) {
  environment_.worker->Post([this, core = core_, alive = alive_, engine = environment_.engine,
                             generation = generation_, job = std::move(job),
                             done = std::move(done)] {
    auto begin = std::chrono::steady_clock::now();
    T result = job(*core->worker);
    double busy_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    engine->Post([this, alive, generation, busy_s, done, result = std::move(result)]() mutable {
      if (*alive && generation == generation_) done(std::move(result), busy_s);
    });
  });
}

void OwnerSession::MakeBatches() {
  auto add = [this](const std::vector<uint32_t>& pieces) {
    for (uint32_t piece : pieces) batch_of_[piece] = batches_.size();
    batches_.push_back({pieces, static_cast<uint32_t>(pieces.size())});
  };
  for (const std::vector<uint32_t>& equal : scheduler::BatchesOf(plan(), environment_.owner)) {
    if (plan().pieces[equal.front()].rule == Rule::kMuon) {
      std::map<int, std::vector<uint32_t>> by_group;  // one set of step values per call
      for (uint32_t piece : equal) {
        by_group[spec().parameters[plan().pieces[piece].parameter].group].push_back(piece);
      }
      for (const auto& [group, pieces] : by_group) add(pieces);
    }
  }
  for (uint32_t piece = 0; piece < plan().pieces.size(); ++piece) {
    const scheduler::Piece& p = plan().pieces[piece];
    if (p.rule == Rule::kAdamW && p.owners.front() == environment_.owner) add({piece});
  }
}

void OwnerSession::AddTrainer(const v1::AddTrainer& message) {
  trainers_[message.trainer()] = MakeTrainerInfo(spec(), plan(), message);
  if (message.resumed()) {  // the others' places are known, whether they are back or not
    CompleteTrainerSet();
    PublishTo({message.trainer()});
    return;
  }
  for (const TrainerInfo& trainer : trainers_) {
    if (!trainer.attached) return;
  }
  CompleteTrainerSet();
  initial_.emplace(set_, plan());
  std::vector<uint32_t> none;
  initial_->Seal({}, &none);  // no initial value may be absent
  initial_open_ = static_cast<uint32_t>(set_->places.size());
  if (initial_open_ == 0) TakeInitialPiece(0);
  TakeEarlyBuckets();
}

void OwnerSession::TakeEarlyBuckets() {
  for (BucketPtr& bucket : std::exchange(early_, {})) {
    BucketHeader header = bucket->header();
    bool stale = false;
    Status status = TakeBucket(std::move(bucket), &stale);
    if (status.ok()) continue;
    environment_.host->SendToCoordinator(DataErrorOf(header, stale, status.message()));
  }
}

v1::OwnerMessage OwnerSession::DataErrorOf(const BucketHeader& header, bool stale,
                                           const std::string& message) {
  v1::OwnerMessage report;
  v1::DataError& error = *report.mutable_data_error();
  error.set_session(header.session);
  error.set_trainer(header.trainer);
  error.set_generation(header.generation);
  error.set_stale(stale);
  error.set_message(message);
  return report;
}

void OwnerSession::CompleteTrainerSet() {
  set_ = MakeTrainerSet(spec(), plan(), environment_.owner, trainers_);
}

void OwnerSession::RemoveTrainer(uint32_t trainer) { trainers_[trainer].attached = false; }

Status OwnerSession::TakeBucket(BucketPtr bucket, bool* stale) {
  BucketHeader header = bucket->header();
  *stale =
      header.generation < generation_ || (header.generation == generation_ && !step_ && aborted_);
  if (header.trainer >= trainers_.size() || !trainers_[header.trainer].attached) {
    return Status::FailedPrecondition("bucket from trainer " + std::to_string(header.trainer) +
                                      ", which is not attached");
  }
  Status status = CheckBucketMessage(trainers_[header.trainer].layout, *bucket);
  if (!status.ok()) return status;

  bool initial = header.kind == static_cast<uint8_t>(BucketKind::kInitial);
  bool waits = initial ? !set_ : header.generation == generation_ + 1;
  if (waits) {
    early_.push_back(std::move(bucket));
    return Status::Ok();
  }
  if (initial ? !initial_.has_value() : (header.generation != generation_ || !step_)) {
    return Status::FailedPrecondition("trainer " + std::to_string(header.trainer) +
                                      " pushed bucket " + std::to_string(header.bucket) +
                                      " for generation " + std::to_string(header.generation) +
                                      "; the current one is " + std::to_string(generation_) +
                                      (step_ || initial_ ? "" : ", and no step is in progress"));
  }
  std::vector<uint32_t> complete;
  status = (initial ? *initial_ : step_->assembly).Take(std::move(bucket), &complete);
  if (!status.ok()) return status;
  if (initial) {
    for (uint32_t piece : complete) TakeInitialPiece(piece);
  } else {
    AdvancePieces(complete);
  }
  return Status::Ok();
}

void OwnerSession::TakeInitialPiece(uint32_t piece) {
  auto finished = [this](std::string error) {
    if (initial_done_) return;
    bool last = initial_open_ <= 1;
    if (initial_open_ > 0) --initial_open_;
    if (error.empty() && !last) return;
    initial_done_ = true;
    initial_.reset();
    v1::OwnerMessage message;
    message.mutable_initial_values_done()->set_session(id_);
    message.mutable_initial_values_done()->set_error(error);
    environment_.host->SendToCoordinator(message);
  };
  if (set_->places.empty()) {
    finished({});
    return;
  }
  Run<std::string>(
      [set = set_, piece, contributions = initial_->ContributionsOf(piece)](StepWorker& worker) {
        return worker.TakeInitialValues(*set, piece, contributions);
      },
      [finished](const std::string& error, double) { finished(error); });
}

void OwnerSession::StartStep(const v1::StartStep& message) {
  generation_ = message.generation();
  // The coordinator has checked the values, so there is a result.
  auto values =
      scheduler::StepValues::Make(spec(), OverridesOf(message.groups()), message.grad_scale());
  step_.emplace(Step{std::move(values.value()),
                     Assembly(set_, plan()),
                     batches_,
                     std::nullopt,
                     {},
                     {},
                     {},
                     0,
                     0,
                     0,
                     {},
                     0,
                     false});
  if (!spec().max_grad_norm) step_->clip_factor = kNoClip;
  step_->pieces_open = static_cast<uint32_t>(set_->places.size());
  step_->batches_open = static_cast<uint32_t>(batches_.size());
  TakeEarlyBuckets();
  if (step_->pieces_open == 0) {
    ReportReduced();
    ReportReadyIfDone();
  }
}

void OwnerSession::Seal(const v1::AllSealed& message) {
  if (!step_ || message.generation() != generation_) return;
  std::vector<uint32_t> complete;
  step_->assembly.Seal({message.absent().begin(), message.absent().end()}, &complete);
  AdvancePieces(complete);
}

void OwnerSession::AdvancePieces(const std::vector<uint32_t>& complete) {
  for (uint32_t piece : complete) {
    if (step_->assembly.HasGradient(piece)) {
      if (plan().pieces[piece].rule == Rule::kMuon) ++step_->muon_expected;
      ReducePiece(piece);
    } else {
      ClosePiece(piece);
    }
  }
  ReportReadyIfDone();
}

void OwnerSession::ReducePiece(uint32_t piece) {
  Run<kernels::NormAndFinite>(
      [set = set_, piece, contributions = step_->assembly.ContributionsOf(piece),
       values = step_->values](StepWorker& worker) {
        return worker.Reduce(*set, piece, contributions, values);
      },
      [this, piece](kernels::NormAndFinite norm, double busy_s) {
        if (!step_) return;
        step_->busy_s += busy_s;
        step_->norms[piece] = norm.squared_sum;
        if (norm.finite) {
          step_->reduced.insert(piece);
        } else {
          step_->not_finite.insert(plan().pieces[piece].parameter);
        }
        ClosePiece(piece);
        ReportReadyIfDone();
      });
}

void OwnerSession::ClosePiece(uint32_t piece) {
  Batch& batch = step_->batches[batch_of_.at(piece)];
  if (--batch.waiting == 0 && step_->clip_factor) StartBatch(batch);
  if (--step_->pieces_open == 0) ReportReduced();
}

void OwnerSession::Clip(const v1::ClipFactor& message) {
  if (!step_ || message.generation() != generation_) return;
  step_->clip_factor = message.factor();
  for (Batch& batch : step_->batches) StartBatch(batch);  // all pieces are reduced by now
  ReportReadyIfDone();
}

void OwnerSession::StartBatch(const Batch& batch) {
  std::vector<uint32_t> pieces;
  for (uint32_t piece : batch.pieces) {
    if (step_->reduced.count(piece) != 0) pieces.push_back(piece);
  }
  if (pieces.empty()) {
    --step_->batches_open;
    return;
  }
  Run<std::vector<bool>>([pieces, values = step_->values, factor = *step_->clip_factor](
                             StepWorker& worker) { return worker.Update(pieces, values, factor); },
                         [this, pieces](const std::vector<bool>& finite, double busy_s) {
                           if (!step_) return;
                           step_->busy_s += busy_s;
                           OnBatchUpdated(pieces, finite);
                         });
}

void OwnerSession::OnBatchUpdated(const std::vector<uint32_t>& pieces,
                                  const std::vector<bool>& finite) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const scheduler::Piece& piece = plan().pieces[pieces[i]];
    if (!finite[i]) step_->not_finite.insert(piece.parameter);
    if (piece.rule != Rule::kMuon) continue;
    v1::Orthogonalised& count = step_->orthogonalised[CountKey(piece)];
    count.set_rule(std::string(NameOf(piece.rule)));
    count.set_form(std::string(NameOf(piece.muon.newton_schulz.form)));
    count.set_precision(std::string(NameOf(piece.muon.newton_schulz.precision)));
    count.set_matrices(count.matrices() + 1);
  }
  --step_->batches_open;
  ReportReadyIfDone();
}

void OwnerSession::ReportReduced() {
  v1::OwnerMessage message;
  v1::Reduced& reduced = *message.mutable_reduced();
  reduced.set_session(id_);
  reduced.set_generation(generation_);
  for (const auto& [piece, norm] : step_->norms) {
    v1::PieceNorm& entry = *reduced.add_norms();
    entry.set_piece(piece);
    entry.set_squared_sum(norm);
  }
  if (!step_->not_finite.empty()) {
    reduced.set_not_finite_parameter(*step_->not_finite.begin());
    reduced.set_not_finite(spec().parameters[*step_->not_finite.begin()].name);
  }
  environment_.host->SendToCoordinator(message);
}

void OwnerSession::ReportReadyIfDone() {
  if (step_->reported || step_->pieces_open != 0 || step_->batches_open != 0) return;
  step_->reported = true;
  v1::OwnerMessage message;
  v1::StepReady& ready = *message.mutable_step_ready();
  ready.set_session(id_);
  ready.set_generation(generation_);
  for (const auto& [key, count] : step_->orthogonalised) *ready.add_orthogonalised() = count;
  ready.set_muon_matrices_expected(step_->muon_expected);
  ready.set_busy_s(step_->busy_s);
  if (!step_->not_finite.empty()) {
    ready.set_not_finite_parameter(*step_->not_finite.begin());
    ready.set_not_finite(spec().parameters[*step_->not_finite.begin()].name);
  }
  environment_.host->SendToCoordinator(message);
}

void OwnerSession::Finish(const v1::FinishStep& message) {
  if (!step_ || message.generation() != generation_) return;
  last_busy_s_ = step_->busy_s;
  step_.reset();
  aborted_ = message.outcome() == v1::STEP_OUTCOME_ABORTED;
  bool committed = message.outcome() == v1::STEP_OUTCOME_COMMITTED;
  environment_.worker->Post([core = core_, committed] {
    if (committed) {
      core->worker->Commit();
    } else {
      core->worker->Discard();
    }
  });
  if (!committed) return;
  std::vector<uint32_t> receivers;
  for (uint32_t trainer = 0; trainer < trainers_.size(); ++trainer) {
    if (trainers_[trainer].attached) receivers.push_back(trainer);
  }
  PublishTo(receivers);
}

void OwnerSession::PublishTo(const std::vector<uint32_t>& receivers) {
  for (uint32_t bucket = 0; bucket < plan().buckets.size(); ++bucket) {
    if (plan().buckets[bucket].owner != environment_.owner) continue;
    environment_.worker->Post([this, core = core_, alive = alive_, engine = environment_.engine,
                               set = set_, receivers, bucket, session = id_,
                               generation = generation_] {
      auto published = core->worker->Publish(*set, receivers, bucket, session, generation);
      engine->Post([this, alive, set, published = std::move(published)] {
        if (!*alive) return;
        for (const PublishedBucket& p : published) {
          environment_.host->SendToTrainer(set->trainers[p.trainer], p.message);
        }
      });
    });
  }
}

std::vector<v1::MissingFromTrainer> OwnerSession::Missing() const {
  std::vector<v1::MissingFromTrainer> missing;
  const Assembly* assembly = step_ ? &step_->assembly : initial_ ? &*initial_ : nullptr;
  if (assembly == nullptr) return missing;
  for (uint32_t trainer = 0; trainer < trainers_.size(); ++trainer) {
    std::set<uint32_t> parameters = assembly->MissingFrom(trainer);
    if (parameters.empty()) continue;
    v1::MissingFromTrainer& entry = missing.emplace_back();
    entry.set_trainer(trainer);
    entry.set_parameters(parameters.size());
    for (uint32_t parameter : parameters) {
      if (static_cast<size_t>(entry.examples_size()) == kMissingExamples) break;
      entry.add_examples(spec().parameters[parameter].name);
    }
  }
  return missing;
}

}  // namespace dmuon
