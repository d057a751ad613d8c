// What a BucketedDDP does inside backward and after it.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "collectives/errors.h"
#include "collectives/gather.h"
#include "collectives/record/clock.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/ddp/in_step.h"

namespace trainsys {

using collectives::AsBuffer;
using collectives::Error;
using collectives::PeerFailed;
using collectives::ReduceOp;
using collectives::Work;
using Outcome = BackwardReport::Outcome;

// ---- Inside backward

void BucketedDDP::OnGradientReady(size_t parameter) {
  CheckGradient(parameter);
  if (Bring(parameter)) progress_.MarkUsed(parameter);
  if (phase_ == Phase::kNoSync) return;
  // Until it is averaged: who clips or scales it now would do so to its own
  // rank's, while others read it.
  trained_.tensors[parameter].mutable_grad().reset();
  progress_.MarkReady(parameter, collectives::NowNs());
  while (works_.size() < store_->plan().size() &&
         progress_.IsFull(works_.size())) {
    PostNextBucket();
  }
}

void BucketedDDP::CheckGradient(size_t parameter) const {
  const auto refuse = [this, parameter](const std::string& why) {
    throw Error("parameter '" + trained_.names[parameter] + "' " + why);
  };
  const at::Tensor& grad = trained_.tensors[parameter].grad();
  if (c10::GradMode::is_enabled()) {
    refuse(
        "got a gradient with create_graph, which cannot be averaged in "
        "place; expected backward() without it (torch::autograd::grad may "
        "have it)");
  }
  if (grad.defined() && grad.layout() != at::kStrided) {
    refuse(
        "got a sparse gradient, expected a dense one: make its layer with "
        "sparse(false)");
  }
  if (phase_ == Phase::kIdle) {
    refuse(
        "got a gradient without BeginForward; expected one before each "
        "forward");
  }
  if (follower_ && torch::autograd::get_current_graph_task_keep_graph()) {
    refuse(
        "got a gradient with retain_graph, but is stepped inside this "
        "backward; expected backward() without it, or an optimizer that steps "
        "after it");
  }
  if (progress_.IsReady(parameter)) {
    refuse(
        "got a second gradient before FinishGradientSync; expected one "
        "backward between two of them, or NoSync");
  }
}

bool BucketedDDP::Bring(size_t parameter) {
  const size_t turn = works_.size();
  if (progress_.BucketOf(parameter) == turn) AwaitBufferFor(turn);
  return store_->Bring(parameter);
}

void BucketedDDP::PostNextBucket() {
  const size_t b = works_.size();
  AwaitBufferFor(b);
  FullBucket full = store_->Close(b);
  full.op = OpOf(b);
  // Losses that are weighed are divided at the end, when all weights are known.
  const double divisor = IsMeanOfRanks() || options_.weigh_losses
                             ? 1
                             : DivisorOf(b, attendance_.num_ranks);
  works_.push_back(
      InStep(step_, [&] { return options_.comm_hook(full, *comm_); }));
  // A Work that was dropped may be done after this has gone.
  works_.back().OnDone([this, b, divisor, alive = std::weak_ptr(is_alive_)] {
    if (!alive.expired()) OnReduced(b, divisor);
  });
}

// Where buckets share buffers, one that is being reduced must be kept first.
void BucketedDDP::AwaitBufferFor(size_t bucket) {
  if (bucket >= store_->num_buffers() && bucket < store_->plan().size()) {
    InStep(step_, [&] { works_[bucket - store_->num_buffers()].Wait(); });
  }
}

void BucketedDDP::OnReduced(size_t bucket, double divisor) {
  store_->Keep(bucket, divisor);
  if (!follower_) return;
  std::vector<size_t> planned;
  for (size_t p : store_->plan()[bucket].parameters) {
    if (planned_->PlannedOf(p)) planned.push_back(*planned_->PlannedOf(p));
  }
  follower_->OnReduced(planned);
}

bool BucketedDDP::IsMeanOfRanks() const {
  return !options_.weigh_losses && attendance_.num_ranks == comm_->ranks();
}

bool BucketedDDP::IsF16(size_t bucket) const {
  const size_t p = store_->plan()[bucket].parameters[0];
  return trained_.tensors[p].scalar_type() == at::kHalf;
}

// A sum that is divided later; but that of many ranks may be too large for f16
// where their mean is not.
ReduceOp BucketedDDP::OpOf(size_t bucket) const {
  return IsMeanOfRanks() || IsF16(bucket) ? ReduceOp::kAverage : ReduceOp::kSum;
}

double BucketedDDP::DivisorOf(size_t bucket, double divisor) const {
  return IsF16(bucket) ? divisor / comm_->ranks() : divisor;
}

// ---- After backward

void BucketedDDP::FinishGradientSync() {
  if (phase_ != Phase::kSync) throw Error(kNothingToFinish);
  try {
    BringTheRest();
  } catch (const std::exception& e) {
    Reset(e.what());  // so that it is not this rank's alone
    throw;
  }
  try {
    AverageGradients();
  } catch (...) {
    ZeroGrad();  // some are reduced and some are not
    if (follower_) follower_->OnFailed();
    throw;
  }
}

// After it every gradient, or zeros, is in its place.
void BucketedDDP::BringTheRest() {
  if (!attendance_.has_me) DataParallel::ZeroGrad();
  for (size_t p = 0; p < trained_.tensors.size(); ++p) {
    if (!progress_.IsReady(p)) {
      Bring(p);
    } else if (trained_.tensors[p].grad().defined()) {
      throw Error("the gradient of '" + trained_.names[p] +
                  "' was set between backward and FinishGradientSync, while it "
                  "was on its way; expected that after it");
    }
  }
}

void BucketedDDP::AverageGradients() {
  const std::vector<BackwardReport> reports =
      CompleteBackward(attendance_.has_me ? Outcome::kDone : Outcome::kNoBatch);
  ThrowIfGivenUp(reports);
  ThrowIfUnused(reports);
  if (options_.weigh_losses) DivideBy(WeightOf(reports));
  for (size_t p = 0; p < trained_.tensors.size(); ++p) {
    store_->Show(p, IsUsedAnywhere(reports, p));
  }
}

void BucketedDDP::DivideBy(double weight) {
  for (size_t b = 0; b < store_->plan().size(); ++b) {
    store_->Divide(b, DivisorOf(b, weight));
  }
}

double BucketedDDP::WeightOf(const std::vector<BackwardReport>& reports) const {
  try {
    return TotalWeight(reports);
  } catch (const Error& e) {
    throw Error(StepText(step_ - 1) + e.what());
  }
}

void BucketedDDP::ReduceNow() {
  if (HasNoSync()) throw Error("ReduceNow: expected to be outside NoSync");
  if (IsUnderWay()) {
    throw Error(
        "ReduceNow: gradients of the backward before are on their way; "
        "expected FinishGradientSync or Reset first");
  }
  if (HasShards()) {
    throw Error(
        "ReduceNow: averaged gradients are kept; expected ZeroGrad first");
  }
  BeginSync();
  for (size_t p = 0; p < trained_.tensors.size(); ++p) {
    if (trained_.tensors[p].grad().defined()) progress_.MarkUsed(p);
  }
  FinishGradientSync();
}

void BucketedDDP::Reset(std::string_view why) {
  if (phase_ == Phase::kIdle) return;
  ZeroGrad();  // first: they may be of a kind that has no place in a bucket
  if (phase_ == Phase::kNoSync) BeginSync();
  BringTheRest();
  const auto reports = CompleteBackward(Outcome::kGivenUp);
  ZeroGrad();
  if (follower_) follower_->OnFailed();
  CauseOf(*WhoGaveUp(reports), why);
}

void BucketedDDP::ZeroGrad() {
  DataParallel::ZeroGrad();
  if (IsUnderWay()) return;
  weight_->reset();
  progress_.Restart();
  store_->Drop();
}

bool BucketedDDP::HasMicroSteps() const {
  const std::vector<bool>& is_used = progress_.is_used();
  return std::find(is_used.begin(), is_used.end(), true) != is_used.end();
}

// Are there averaged gradients where a new store would not have them?
bool BucketedDDP::HasShards() const {
  return options_.sharding != GradientSharding::kNone && !store_->IsEmpty();
}

bool BucketedDDP::IsUnderWay() const {
  return progress_.HasBegun() || !works_.empty();
}

// Posts what this rank has not posted yet, and waits for all of it.
std::vector<BackwardReport> BucketedDDP::CompleteBackward(Outcome outcome) {
  while (works_.size() < store_->plan().size()) PostNextBucket();
  std::vector<uint8_t> mine = Encode({outcome, *weight_, progress_.is_used()});
  std::vector<uint8_t> all(mine.size() * static_cast<size_t>(comm_->ranks()));
  works_.push_back(comm_->StartAllGather(
      AsBuffer(std::span(mine)), AsBuffer(std::span(all)),
      std::vector<int64_t>(static_cast<size_t>(comm_->ranks()),
                           static_cast<int64_t>(mine.size())),
      "end of backward"));
  AwaitAll();
  return Decode(all, static_cast<size_t>(comm_->ranks()),
                trained_.tensors.size());
}

void BucketedDDP::AwaitAll() {
  std::vector<Work> works = std::exchange(works_, {});
  order_seen_ = progress_.order();
  if (plan_ == Plan::kByRegistration) plan_ = Plan::kOrderIsKnown;
  StartStep();
  InStep(step_++, [&works] {
    for (Work& work : works) work.Wait();
  });
}

void BucketedDDP::ThrowIfGivenUp(const std::vector<BackwardReport>& reports) {
  const std::optional<int> rank = WhoGaveUp(reports);
  if (!rank) return;
  throw PeerFailed(*rank, StepText(step_ - 1) + "rank " +
                              std::to_string(*rank) +
                              " gave its backward up: " + CauseOf(*rank, ""));
}

void BucketedDDP::ThrowIfUnused(const std::vector<BackwardReport>& reports) {
  const std::string unused = UnusedText(reports, trained_.names);
  const bool is_allowed =
      options_.find_unused_parameters && IsAnythingUsed(reports);
  if (unused.empty() || is_allowed) return;
  throw Error(StepText(step_ - 1) + "no gradient for " + unused +
              "; expected a backward() that uses them: use or freeze them, set "
              "find_unused_parameters, or call ReduceNow for gradients "
              "computed without backward()");
}

std::string BucketedDDP::CauseOf(int rank, std::string_view mine) {
  return collectives::GatherText(*comm_, mine,
                                 "cause")[static_cast<size_t>(rank)];
}

void BucketedDDP::StartStep() {
  phase_ = Phase::kIdle;
  attendance_ = {.num_ranks = comm_->ranks()};
  is_open_ = false;
  weight_->reset();
  progress_.Restart();
}

}  // namespace trainsys
