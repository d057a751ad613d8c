// Data parallelism: gradients averaged over ranks, bucket by bucket, while
// backward is still running.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/ddp/backward_progress.h"
#include "trainsys/ddp/backward_report.h"
#include "trainsys/ddp/bucket_plan.h"
#include "trainsys/ddp/comm_hook.h"
#include "trainsys/ddp/data_parallel.h"
#include "trainsys/ddp/gradient_store.h"
#include "trainsys/ddp/module_parameters.h"
#include "trainsys/ddp/parameter_hooks.h"
#include "trainsys/ddp/planned_parameters.h"
#include "trainsys/zero/shard_plan.h"

namespace trainsys {

struct BucketedDDPOptions {
  int64_t bucket_bytes = BucketLimits().bucket_bytes;
  int64_t first_bucket_bytes = BucketLimits().first_bucket_bytes;
  // A parameter that this rank did not use contributes -0, and one that no
  // rank used keeps no gradient. Otherwise either is an error on all ranks.
  bool find_unused_parameters = false;
  // Once a step, in Join or before its first forward outside NoSync: as often
  // on every rank, however many forwards it comes to.
  bool broadcast_buffers = false;
  // The mean is over samples, not over ranks: every loss goes through Weigh.
  bool weigh_losses = false;
  CommHook comm_hook = NoCompression();
  // ZeRO: what each rank has of the gradients, cut by `partition`; p.grad()
  // where that is all of p. So the optimizer is made from this object, not from
  // parameters(), which it would train in part and silently. With kReduced,
  // accumulate under NoSync. With kStored each micro-step ends with
  // FinishGradientSync, whose averages add up until ZeroGrad (this one, or the
  // optimizer's: the module's own does not see shards); NoSync and weigh_losses
  // are refused.
  GradientSharding sharding = GradientSharding::kNone;
  Partition partition = Partition::kFlat;
};

// Who works with gradients while backward is still running.
class BackwardFollower {
 public:
  virtual ~BackwardFollower() = default;
  // The gradients of a bucket are means over ranks now, as far as this rank has
  // them. On the rank's own thread, in the order of buckets. `parameters`:
  // indices into planned().
  virtual void OnReduced(std::span<const size_t> parameters) = 0;
  // Before a forward begins on the parameters. Posts nothing.
  virtual void BeforeForward() = 0;
  // The step has failed, on all ranks, which have been told why.
  virtual void OnFailed() = 0;
};

// What Join does once some ranks have batches left and others have none.
enum class Uneven { kContributeZeros, kIsAnError };

// Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data
// Parallel Training", VLDB 2020, section 3.2.
//
// Each bucket is one contiguous buffer of gradients; GradientStore says for how
// long they live there. When the last gradient of a bucket has been
// accumulated, its hook posts an asynchronous reduction of the buffer; buckets
// are posted in the order of the plan on every rank, on a channel of their own.
// At the end of each synchronized backward the ranks tell each other how it
// went. Between two FinishGradientSync every rank posts the same collectives,
// whatever happens to it; so an error is an error on all ranks, and the next
// step works.
//
// Buckets are planned in the reverse of registration, and once again, before
// the second synchronized backward (where averages add up, the first one after
// ZeroGrad), in the order in which rank 0 got its gradients in the first. The
// bits do not depend on it.
//
// Threads: the rank's own thread. Lifetime: holds the parameters and a channel
// of `comm`; the module and `comm` outlive it.
// Errors: the constructor throws InvalidArgument on every rank when the ranks'
// modules differ; errors of the collectives come out of backward() and
// FinishGradientSync as themselves.
//
// Example: see data_parallel.h.
class BucketedDDP final : public DataParallel {
 public:
  // A collective: checks that the modules agree, then copies rank 0's
  // parameters and buffers to all ranks.
  BucketedDDP(torch::nn::Module& module, collectives::Communicator& comm,
              BucketedDDPOptions options = {});
  ~BucketedDDP() override;

  // As of the last BeginForward: a parameter may be frozen or thawed before the
  // step's first one, or before its Join, on all ranks. A frozen one has no
  // gradient.
  const std::vector<at::Tensor>& parameters() const override {
    return trained_.tensors;
  }
  const std::vector<std::string>& names() const { return trained_.names; }
  // As of the last BeginForward.
  const std::vector<Bucket>& buckets() const { return store_->plan(); }

  // With a follower it waits, in evaluations too, until parameters are whole.
  void BeginForward() override;
  // Errors: also Error, on every rank: for parameters that ranks have not used,
  // with names and ranks; for losses that were not weighed; on the rank that
  // set a gradient since backward, PeerFailed on the others. PeerFailed where
  // another rank called Reset. The gradients are then undefined.
  void FinishGradientSync() override;
  void ZeroGrad() override;

  // Averages the gradients that are there now, whoever computed them, without
  // a backward; in place of BeginForward and FinishGradientSync.
  // Errors: Error under NoSync, or where averages of sharded gradients are kept
  // (ZeroGrad first); those of FinishGradientSync.
  void ReduceNow();

  // After an exception between BeginForward, or Join, and FinishGradientSync:
  // gives this step up, on all ranks, whose FinishGradientSync throws
  // PeerFailed with `why`. Elsewhere it does nothing. Drops the gradients.
  // Blocks until the other ranks have come to their FinishGradientSync.
  // Errors: those of the collectives, if a rank does not come.
  void Reset(std::string_view why);

  // Result: the loss, times `weight`: backward() of it counts as `weight`
  // samples in the mean over ranks and micro-steps, which is then
  // sum(weight * gradient) / sum(weight), as of one rank with all samples. Each
  // pass through it counts, that of torch::autograd::grad as well.
  // Errors: InvalidArgument without weigh_losses, or for a weight below 0 or
  // not finite.
  at::Tensor Weigh(const at::Tensor& loss, double weight);

  // A collective before each step, for ranks that may have different numbers
  // of batches. Result: whether any rank has one left; if so, every rank goes
  // on to FinishGradientSync, those without a batch without forward and
  // backward: they contribute zeros, and the mean is over the others.
  // Errors: with kIsAnError, Error on every rank that names the step and the
  // ranks.
  //
  // Example:
  //   while (ddp.Join(batches.left())) {
  //     if (batches.left() > 0) Backward(ddp, batches.Next());
  //     ddp.FinishGradientSync();
  //     optimizer.Step();
  //     ddp.ZeroGrad();  // before Join: what is kept then is added to
  //   }
  bool Join(int64_t batches_left, Uneven uneven = Uneven::kContributeZeros);

  // From now on `follower`, the only one, hears of each bucket. Begins and ends
  // between steps. Means must be known as soon as a bucket is reduced, so
  // NoSync, retain_graph and the options weigh_losses and
  // find_unused_parameters are refused with it. Lifetime: `follower` outlives
  // this, or ends it by Unfollow.
  void Follow(BackwardFollower& follower);
  // Blocks: until it has heard of the buckets that are posted, as all ranks'
  // do; not while an exception unwinds.
  void Unfollow();

  // The parameters that were trained at construction, and how they are cut.
  // Where gradients are sharded, only they can be thawed again.
  const std::vector<at::Tensor>& planned() const { return planned_->all(); }
  const ShardPlan& shard_plan() const { return planned_->plan(); }

  // After FinishGradientSync: a part, in elements, of the averaged gradient of
  // planned()[parameter], which this rank must have. Shape: [elems]; undefined
  // if no rank had a gradient.
  at::Tensor Gradient(size_t parameter, int64_t begin, int64_t elems) const;
  // The same inside OnReduced, where there always is one.
  at::Tensor ReducedGradient(size_t parameter, int64_t begin,
                             int64_t elems) const;

  // When each parameter's gradient was last ready, NowNs(); 0 if it never was.
  const std::vector<int64_t>& ready_ns() const { return progress_.ready_ns(); }
  // Of the storages in which gradients stay, padding included.
  int64_t GradientBytes() const override { return store_->Bytes(); }

 private:
  enum class Phase {
    kIdle,
    kNoSync,  // the last forward began under NoSync
    kSync,    // a forward began outside it
  };
  enum class Plan {
    kByRegistration,
    kOrderIsKnown,  // one backward has been synchronized since
    kByOrder,
  };
  // Which ranks have a batch in this step.
  struct Attendance {
    int num_ranks = 0;
    int first_rank = 0;
    bool has_me = true;
  };

  // Before forward.
  bool HasMicroSteps() const;
  bool IsUnderWay() const;
  bool HasShards() const;
  void RefuseNoSync() const;
  void BeginSync();
  void OpenStep();
  void FollowModule();
  void Train(NamedTensors trained);
  bool HasChanged() const;
  void PlanInOrderOfRank0();
  void PlanBucketsIn(std::vector<size_t> order);
  // Inside backward.
  void OnGradientReady(size_t parameter);
  void CheckGradient(size_t parameter) const;
  void PostNextBucket();
  bool Bring(size_t parameter);
  void AwaitBufferFor(size_t bucket);
  void OnReduced(size_t bucket, double divisor);
  bool IsF16(size_t bucket) const;
  bool IsMeanOfRanks() const;
  collectives::ReduceOp OpOf(size_t bucket) const;
  double DivisorOf(size_t bucket, double divisor) const;
  // After it.
  std::vector<BackwardReport> CompleteBackward(BackwardReport::Outcome outcome);
  void BringTheRest();
  void AverageGradients();
  void DivideBy(double weight);
  void AwaitAll();
  void StartStep();
  void ThrowIfGivenUp(const std::vector<BackwardReport>& reports);
  void ThrowIfUnused(const std::vector<BackwardReport>& reports);
  double WeightOf(const std::vector<BackwardReport>& reports) const;
  std::string CauseOf(int rank, std::string_view mine);

  torch::nn::Module& module_;
  const BucketedDDPOptions options_;
  std::unique_ptr<collectives::Communicator> comm_;

  NamedTensors all_;                          // parameters of the module
  NamedTensors trained_;                      // of them
  std::optional<PlannedParameters> planned_;  // trained at construction
  std::vector<size_t> order_;                 // in which gradients are expected
  Plan plan_ = Plan::kByRegistration;
  bool must_compare_ = false;       // requires_grad has changed
  std::vector<size_t> order_seen_;  // in the last synchronized backward
  std::unique_ptr<GradientStore> store_;
  BackwardFollower* follower_ = nullptr;
  // Of this object, for what may run after it.
  const std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);

  // Of the step that is running.
  int64_t step_ = 0;
  Phase phase_ = Phase::kIdle;
  Attendance attendance_;
  bool is_open_ = false;  // see OpenStep
  // Of this rank's losses so far; shared with their graphs.
  const std::shared_ptr<std::optional<double>> weight_ =
      std::make_shared<std::optional<double>>();
  BackwardProgress progress_{0};
  std::vector<collectives::Work> works_;  // of the buckets posted so far

  ParameterHooks hooks_;  // last: gone before what they use
};

}  // namespace trainsys
