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
#include "trainsys/ddp/gradient_buckets.h"
#include "trainsys/ddp/gradient_shard.h"
#include "trainsys/ddp/in_step.h"
#include "trainsys/ddp/same_module.h"

namespace trainsys {

using collectives::AsBuffer;
using collectives::Communicator;
using collectives::Error;
using collectives::InvalidArgument;
using collectives::Work;

namespace {

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
          line("comm_hook", options.comm_hook != nullptr),
          line("sharding", static_cast<int64_t>(options.sharding)),
          line("partition", static_cast<int64_t>(options.partition))};
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
  if (options_.weigh_losses && options_.sharding == GradientSharding::kStored) {
    throw InvalidArgument(
        "weigh_losses with GradientSharding::kStored: the weight of a step is "
        "known after its gradients are gone; expected kNone or kReduced");
  }
  RefuseSparseGradients(module);
  planned_.emplace(TrainedOf(all_).tensors, comm.ranks(), options_.partition);
  AttributeMemoryOf(module);
  StartStep();
  FollowModule();
  must_compare_ = false;
  BroadcastFromRank0(module, *comm_);
}

BucketedDDP::~BucketedDDP() = default;

void BucketedDDP::BeginForward() {
  if (!c10::GradMode::is_enabled()) {
    if (follower_ && !IsUnderWay()) follower_->BeforeForward();
    return;
  }
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
  if (HasNoSync()) RefuseNoSync();
  if (phase_ == Phase::kIdle) weight_->reset();  // of graphs run between steps
  if (HasNoSync()) {
    store_->Open();
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

void BucketedDDP::RefuseNoSync() const {
  if (options_.sharding == GradientSharding::kStored) {
    throw Error(
        "BeginForward: NoSync, but this rank keeps no gradient of its own to "
        "add to; expected FinishGradientSync after each micro-step");
  }
  if (follower_) {
    throw Error(
        "BeginForward: NoSync, but parameters are stepped inside each "
        "backward; expected an optimizer that steps after it");
  }
}

void BucketedDDP::Follow(BackwardFollower& follower) {
  const auto refuse = [](const std::string& what) {
    throw InvalidArgument("stepping inside backward with " + what +
                          "; expected an optimizer that steps after it");
  };
  if (follower_) refuse("another optimizer that does");
  if (phase_ == Phase::kSync) refuse("gradients on their way already");
  if (options_.weigh_losses) {
    refuse("weigh_losses, whose mean is known after it only");
  }
  if (options_.find_unused_parameters) {
    refuse("find_unused_parameters, which are known after it only");
  }
  follower_ = &follower;
}

void BucketedDDP::Unfollow() {
  if (follower_ && std::uncaught_exceptions() == 0) {
    try {
      for (Work& work : works_) work.Wait();
    } catch (const std::exception&) {  // FinishGradientSync waits again
    }
  }
  follower_ = nullptr;
}

// The same collectives on every rank, whatever its part in the step. A step is
// opened once, so that a rank which fails between Join and BeginForward owes
// the others no more.
void BucketedDDP::BeginSync() {
  std::exception_ptr refused;  // perhaps on this rank alone
  try {
    if (follower_) follower_->BeforeForward();
    store_->Open();
  } catch (...) {
    refused = std::current_exception();
  }
  if (is_open_) {
    hooks_.Renew();
  } else {
    OpenStep();
  }
  phase_ = Phase::kSync;
  if (refused) std::rethrow_exception(refused);  // Reset tells the others
}

void BucketedDDP::OpenStep() {
  FollowModule();
  if (must_compare_) CheckSameStructure(module_, *comm_, Lines(options_));
  must_compare_ = false;
  if (plan_ == Plan::kOrderIsKnown && !HasShards()) PlanInOrderOfRank0();
  if (options_.broadcast_buffers) {
    BroadcastBuffers(module_, attendance_.first_rank, *comm_);
  }
  is_open_ = true;
}

// Cheap where nothing has changed.
void BucketedDDP::FollowModule() {
  if (HasChanged()) Train(TrainedOf(all_));
  hooks_.Renew();
}

// From now on these, and no others.
void BucketedDDP::Train(NamedTensors trained) {
  if (store_ && HasShards()) {
    throw Error(
        "BeginForward: what is trained has changed while averaged gradients "
        "are kept; expected ZeroGrad first, and before Join");
  }
  if (options_.sharding != GradientSharding::kNone) {
    planned_->RefuseUnplanned(trained);
  }
  std::set<const at::TensorImpl*> used;  // by micro-steps before
  for (size_t p = 0; p < trained_.tensors.size(); ++p) {
    if (!progress_.is_used()[p]) continue;
    used.insert(trained_.tensors[p].unsafeGetTensorImpl());
  }
  for (const at::Tensor& p : trained_.tensors) {
    if (!p.requires_grad()) p.mutable_grad().reset();
  }
  trained_ = std::move(trained);
  planned_->SetTrained(trained_.tensors);
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

// Is what requires a gradient now something else than what lives in buckets?
bool BucketedDDP::HasChanged() const {
  size_t num_trained = 0;
  for (const at::Tensor& p : all_.tensors) num_trained += p.requires_grad();
  if (!store_ || num_trained != trained_.tensors.size()) return true;
  for (size_t p = 0; p < num_trained; ++p) {
    const at::Tensor& tensor = trained_.tensors[p];
    if (!tensor.requires_grad() || !store_->Fits(p)) return true;
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
  if (store_ && order == order_) return;
  order_ = std::move(order);
  store_.reset();  // first: what no gradient refers to is free again
  const BucketLimits limits = LimitsOf(options_);
  switch (options_.sharding) {
    case GradientSharding::kNone:
      store_ =
          std::make_unique<GradientBuckets>(trained_.tensors, order_, limits);
      break;
    case GradientSharding::kReduced:
      store_ = std::make_unique<GradientBuckets>(
          trained_.tensors, order_, limits, planned_->Sharded(comm_->rank()));
      break;
    case GradientSharding::kStored:
      store_ = std::make_unique<GradientShard>(
          trained_.tensors, order_, limits, planned_->Sharded(comm_->rank()));
      break;
  }
  progress_.SetPlan(store_->plan());
}

at::Tensor BucketedDDP::Gradient(size_t parameter, int64_t begin,
                                 int64_t elems) const {
  const std::optional<size_t> trained = planned_->TrainedOf(parameter);
  return trained ? store_->Result(*trained, begin, elems) : at::Tensor();
}

at::Tensor BucketedDDP::ReducedGradient(size_t parameter, int64_t begin,
                                        int64_t elems) const {
  return store_->Reduced(planned_->TrainedOf(parameter).value(), begin, elems);
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
    // Else the ranks are in it, and this one may call Reset.
    if (phase_ != Phase::kSync) StartStep();
    throw;
  }
  return true;
}

}  // namespace trainsys
