#include "trainsys/ddp/bucketed_ddp.h"

#include <ATen/ops/mul.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <set>
#include <utility>

#include "collectives/errors.h"
#include "collectives/gather.h"
#include "collectives/rank/failure.h"
#include "collectives/record/clock.h"
#include "trainsys/ddp/same_module.h"

namespace trainsys {

using collectives::AsBuffer;
using collectives::Communicator;
using collectives::Error;
using collectives::InvalidArgument;
using collectives::MismatchError;
using collectives::PeerFailed;
using collectives::ReduceOp;
using collectives::TimeoutError;
using collectives::Work;
using Outcome = BackwardReport::Outcome;

namespace {

std::string StepText(int64_t step) {
  return "step " + std::to_string(step) + ": ";
}

// Says of a collective that fails in which step it did.
template <typename Fn>
auto InStep(int64_t step, const Fn& fn) {
  try {
    return fn();
  } catch (const PeerFailed& e) {
    throw PeerFailed(e.rank(), StepText(step) + e.what());
  } catch (const TimeoutError& e) {
    throw TimeoutError(StepText(step) + e.what());
  } catch (const MismatchError& e) {
    throw MismatchError(StepText(step) + e.what() +
                        "; expected the same steps and the same parameters "
                        "to train on every rank");
  }
}

BucketLimits LimitsOf(const BucketedDDPOptions& options) {
  return {options.bucket_bytes, options.first_bucket_bytes};
}

// What must be the same on all ranks beside the module.
std::vector<std::string> Lines(const BucketedDDPOptions& options) {
  const auto line = [](const std::string& name, int64_t value) {
    return "option " + name + " " + std::to_string(value);
  };
  return {line("bucket_bytes", options.bucket_bytes),
          line("first_bucket_bytes", options.first_bucket_bytes),
          line("find_unused_parameters", options.find_unused_parameters),
          line("broadcast_buffers", options.broadcast_buffers),
          line("weigh_losses", options.weigh_losses),
          line("comm_hook", options.comm_hook != nullptr)};
}

}  // namespace

BucketedDDP::BucketedDDP(torch::nn::Module& module, Communicator& comm,
                         BucketedDDPOptions options)
    : module_(module),
      options_(std::move(options)),
      comm_(comm.Duplicate("ddp")),
      all_(ParametersOf(module)) {
  // First: what one rank has to refuse, all then refuse.
  CheckSameStructure(module, *comm_, Lines(options_));
  PlanBuckets({}, LimitsOf(options_));
  if (!options_.comm_hook) {
    throw InvalidArgument("comm_hook is empty, expected one: NoCompression()");
  }
  RefuseSparseGradients(module);
  AttributeMemoryOf(module);
  StartStep();
  FollowModule();
  must_compare_ = false;
  BroadcastFromRank0(module, *comm_);
}

BucketedDDP::~BucketedDDP() = default;

// ---- Before forward

void BucketedDDP::BeginForward() {
  if (!c10::GradMode::is_enabled()) return;
  if (!attendance_.has_me) {
    throw Error(
        "BeginForward: this rank told Join that it has no batch left; expected "
        "FinishGradientSync");
  }
  if (IsUnderWay()) {
    throw Error(
        "BeginForward: gradients of the backward before are on their way; "
        "expected FinishGradientSync or Reset first, or NoSync around that "
        "forward");
  }
  if (is_open_ && HasChanged()) {
    throw Error(
        "BeginForward: what is trained has changed since this step began, with "
        "Join or a BeginForward before; expected that before it");
  }
  if (phase_ == Phase::kIdle) weight_->reset();  // of graphs run between steps
  if (HasNoSync()) {
    if (is_open_) {
      hooks_.Renew();
    } else {
      FollowModule();
    }
    phase_ = Phase::kNoSync;
  } else {
    InStep(step_, [this] { BeginSync(); });
  }
}

// The same collectives on every rank, whatever its part in the step.
// Once a step: a rank that fails between Join and BeginForward posts no more.
void BucketedDDP::BeginSync() {
  if (is_open_) {
    hooks_.Renew();
  } else {
    OpenStep();
  }
  phase_ = Phase::kSync;
}

void BucketedDDP::OpenStep() {
  FollowModule();
  if (must_compare_) CheckSameStructure(module_, *comm_, Lines(options_));
  must_compare_ = false;
  if (plan_ == Plan::kOrderIsKnown) PlanInOrderOfRank0();
  if (options_.broadcast_buffers) {
    BroadcastBuffers(module_, attendance_.first_rank, *comm_);
  }
  is_open_ = true;
}

// Cheap where nothing has changed.
void BucketedDDP::FollowModule() {
  if (HasChanged()) {
    NamedTensors trained = TrainedOf(all_);
    std::set<const at::TensorImpl*> used;  // by micro-steps before
    for (size_t p = 0; p < trained_.tensors.size(); ++p) {
      if (!progress_.is_used()[p]) continue;
      used.insert(trained_.tensors[p].unsafeGetTensorImpl());
    }
    for (const at::Tensor& p : trained_.tensors) {
      if (!p.requires_grad()) p.mutable_grad().reset();
    }
    trained_ = std::move(trained);
    const size_t n = trained_.tensors.size();
    progress_ = BackwardProgress(n);
    order_.clear();
    PlanBucketsIn(CompleteOrder({}, n));
    for (size_t p = 0; p < n; ++p) {
      if (used.contains(trained_.tensors[p].unsafeGetTensorImpl())) {
        progress_.MarkUsed(p);
      }
    }
    plan_ = Plan::kByRegistration;
    must_compare_ = true;
    hooks_ = ParameterHooks(trained_.tensors,
                            [this](size_t p) { OnGradientReady(p); });
  }
  hooks_.Renew();
}

// Is what requires a gradient now something else than what lives in buckets?
bool BucketedDDP::HasChanged() const {
  size_t num_trained = 0;
  for (const at::Tensor& p : all_.tensors) num_trained += p.requires_grad();
  if (!buckets_ || num_trained != trained_.tensors.size()) return true;
  for (size_t p = 0; p < num_trained; ++p) {
    const at::Tensor& tensor = trained_.tensors[p];
    if (!tensor.requires_grad() || !buckets_->Fits(p)) return true;
  }
  return false;
}

void BucketedDDP::PlanInOrderOfRank0() {
  std::vector<int64_t> order;
  for (size_t p : CompleteOrder(order_seen_, trained_.tensors.size())) {
    order.push_back(static_cast<int64_t>(p));
  }
  comm_->Broadcast(AsBuffer(std::span(order)), 0, "order of gradients");
  PlanBucketsIn({order.begin(), order.end()});
  plan_ = Plan::kByOrder;
}

void BucketedDDP::PlanBucketsIn(std::vector<size_t> order) {
  if (buckets_ && order == order_) return;
  order_ = std::move(order);
  buckets_.reset();  // first: what no gradient refers to is free again
  buckets_ = std::make_unique<GradientBuckets>(trained_.tensors, order_,
                                               LimitsOf(options_));
  progress_.SetPlan(buckets_->plan());
}

at::Tensor BucketedDDP::Weigh(const at::Tensor& loss, double weight) {
  if (!options_.weigh_losses) {
    throw InvalidArgument("Weigh: expected weigh_losses among the options");
  }
  if (!(weight >= 0) || !std::isfinite(weight)) {
    throw InvalidArgument("weight is " + std::to_string(weight) +
                          ", expected a finite number, 0 or above");
  }
  const at::Tensor weighed = loss * weight;
  if (!weighed.requires_grad()) return weighed;
  // A graph may be run more than once, not at all, or after this has gone.
  weighed.register_hook([total = weight_, weight](const at::Tensor&) {
    *total = total->value_or(0) + weight;
  });
  return weighed;
}

bool BucketedDDP::Join(int64_t batches_left, Uneven uneven) {
  if (phase_ == Phase::kSync || HasMicroSteps()) {
    throw Error(
        "Join: expected FinishGradientSync first, and Join before the first "
        "micro-step");
  }
  const std::vector<int64_t> left = InStep(step_, [&] {
    return collectives::Gather(*comm_, batches_left, "batches left");
  });
  std::vector<int> with, without;
  for (size_t r = 0; r < left.size(); ++r) {
    (left[r] > 0 ? with : without).push_back(static_cast<int>(r));
  }
  if (with.empty()) return false;
  if (uneven == Uneven::kIsAnError && !without.empty()) {
    throw Error(StepText(step_) + collectives::RankList(without) +
                " no batch left, " + collectives::RankList(with) +
                " more; expected as many batches on every rank, or Join with "
                "kContributeZeros");
  }
  attendance_ = {static_cast<int>(with.size()), with[0], batches_left > 0};
  try {
    InStep(step_, [this] { BeginSync(); });
  } catch (...) {
    StartStep();  // no rank is in it
    throw;
  }
  return true;
}

// ---- Inside backward

void BucketedDDP::OnGradientReady(size_t parameter) {
  CheckGradient(parameter);
  if (buckets_->Bring(parameter)) progress_.MarkUsed(parameter);
  if (phase_ == Phase::kNoSync) return;
  // Until it is averaged: who clips or scales it now would do so to its own
  // rank's, while others read it.
  trained_.tensors[parameter].mutable_grad().reset();
  progress_.MarkReady(parameter, collectives::NowNs());
  while (works_.size() < buckets_->size() && progress_.IsFull(works_.size())) {
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
  if (progress_.IsReady(parameter)) {
    refuse(
        "got a second gradient before FinishGradientSync; expected one "
        "backward between two of them, or NoSync");
  }
}

void BucketedDDP::PostNextBucket() {
  const size_t b = works_.size();
  works_.push_back(InStep(step_, [this, b] {
    return options_.comm_hook({buckets_->flat(b), OpOf(b), buckets_->label(b)},
                              *comm_);
  }));
}

bool BucketedDDP::IsMeanOfRanks() const {
  return !options_.weigh_losses && attendance_.num_ranks == comm_->ranks();
}

// A sum that is divided later; but that of many ranks may be too large for 16
// bits where their mean is not.
ReduceOp BucketedDDP::OpOf(size_t bucket) const {
  return IsMeanOfRanks() || buckets_->IsF16(bucket) ? ReduceOp::kAverage
                                                    : ReduceOp::kSum;
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
    throw;
  }
}

// After it every gradient, or zeros, is in its place.
void BucketedDDP::BringTheRest() {
  if (!attendance_.has_me) ZeroGrad();
  for (size_t p = 0; p < trained_.tensors.size(); ++p) {
    if (!progress_.IsReady(p)) {
      buckets_->Bring(p);
    } else if (trained_.tensors[p].grad().defined()) {
      throw Error("the gradient of '" + trained_.names[p] +
                  "' was set between backward and FinishGradientSync, while it "
                  "was on its way; expected that after it");
    }
  }
}

void BucketedDDP::AverageGradients() {
  const bool is_mean_of_ranks = IsMeanOfRanks();
  const int num_ranks = attendance_.num_ranks;
  const std::vector<BackwardReport> reports =
      CompleteBackward(attendance_.has_me ? Outcome::kDone : Outcome::kNoBatch);
  ThrowIfGivenUp(reports);
  ThrowIfUnused(reports);
  if (!is_mean_of_ranks) {
    DivideBy(options_.weigh_losses ? WeightOf(reports) : num_ranks);
  }
  for (size_t p = 0; p < trained_.tensors.size(); ++p) {
    if (IsUsedAnywhere(reports, p)) {
      buckets_->Show(p);
    } else {
      trained_.tensors[p].mutable_grad().reset();
    }
  }
}

// See OpOf.
void BucketedDDP::DivideBy(double divisor) {
  for (size_t b = 0; b < buckets_->size(); ++b) {
    buckets_->Divide(b,
                     buckets_->IsF16(b) ? divisor / comm_->ranks() : divisor);
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
  CauseOf(*WhoGaveUp(reports), why);
}

void BucketedDDP::ZeroGrad() {
  DataParallel::ZeroGrad();
  if (IsUnderWay()) return;
  weight_->reset();
  progress_.Restart();
}

bool BucketedDDP::HasMicroSteps() const {
  const std::vector<bool>& is_used = progress_.is_used();
  return std::find(is_used.begin(), is_used.end(), true) != is_used.end();
}

bool BucketedDDP::IsUnderWay() const {
  return progress_.HasBegun() || !works_.empty();
}

// Posts what this rank has not posted yet, and waits for all of it.
std::vector<BackwardReport> BucketedDDP::CompleteBackward(Outcome outcome) {
  while (works_.size() < buckets_->size()) PostNextBucket();
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
