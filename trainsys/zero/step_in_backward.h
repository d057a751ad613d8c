// The optimizer's step and its communication, inside backward.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/optim/optimizer.h"
#include "trainsys/zero/shard_optimizer.h"

namespace trainsys {

// A ZeROOptimizer that does not wait for the end of backward: as soon as a
// bucket is reduced, the rank updates what it owns of the bucket's parameters
// and posts their broadcast, on a channel of its own, while backward goes on.
// It waits for nothing inside backward (but gradients that are kStored wait for
// a buffer, as they do without it). The same numbers.
//
//   compute      ... | layer 2's backward | update 3 | layer 1's backward | ...
//   channel ddp      | bucket 3 | bucket 2 ........ | bucket 1 ...
//   channel zero                           | parameters of bucket 3 ...
//
// A parameter that a part of the graph which has not run yet has saved is an
// error of that backward ("modified by an inplace operation"). Not seen, unless
// by SecondRunCheck::kValues: that a segment of Checkpoint which runs again
// reads a parameter that it neither saves nor has a gradient for, as in
// x + p.detach().
//
// What must know all gradients first is refused: StepScaled other than by 1,
// GradNorm, NoSync, retain_graph, weigh_losses, find_unused_parameters. An
// error of backward or of FinishGradientSync leaves parameters stepped, by what
// the ranks had then: the same on all ranks, but no step to go on from. With
// kStored each micro-step is a step.
//
// Each bucket's broadcasts are one for each owner of a stretch of its
// parameters in the flat buffer.
// Threads: the rank's own thread. Lifetime: `ddp` and `comm` outlive it; one at
// a time follows a `ddp`. It begins and ends between steps, and meanwhile
// parameters are given other data between steps only.
//
// Example:
//   StepInBackward optimizer(ddp, comm, AdamWOptions{.lr = 1e-2});
//   optimizer.ZeroGrad();
//   ddp.BeginForward();
//   model->Loss(batch).backward();  // updates and sends
//   ddp.FinishGradientSync();       // the rest of it
//   optimizer.Step();               // waits until all parameters are there
class StepInBackward final : public Optimizer, private BackwardFollower {
 public:
  // A collective.
  StepInBackward(BucketedDDP& ddp, collectives::Communicator& comm,
                 const OptimizerOptions& options);
  StepInBackward(BucketedDDP& ddp, collectives::Communicator& comm,
                 std::vector<ParameterGroup> groups);
  ~StepInBackward() override;

  void ZeroGrad() override { ddp_.ZeroGrad(); }
  // Waits for the parameters that the other ranks have updated.
  // Errors: Error for a scale other than 1; those of the collectives; what an
  // update inside backward has thrown.
  void StepScaled(double gradient_scale) override;
  // Errors: Error, always.
  double GradNorm() override;
  int64_t StateBytes() const override { return local_.StateBytes(); }

  // Changes take effect with the next bucket that is reduced.
  std::vector<ParameterGroup>& groups() { return local_.groups(); }
  const ShardPlan& plan() const { return local_.plan(); }

 private:
  // Before anything else is done to `ddp` or its parameters.
  class Following {
   public:
    Following(BucketedDDP& ddp, BackwardFollower& follower);
    ~Following() { ddp_.Unfollow(); }
    Following(const Following&) = delete;
    Following& operator=(const Following&) = delete;

   private:
    BucketedDDP& ddp_;
  };

  void OnReduced(std::span<const size_t> parameters) override;
  void BeforeForward() override;
  void OnFailed() override { error_ = nullptr; }
  void AwaitParameters();

  BucketedDDP& ddp_;
  std::unique_ptr<collectives::Communicator> comm_;
  std::exception_ptr error_;  // the first of an update
  Following following_;
  ShardOptimizer local_;
  std::vector<collectives::Work> works_;  // of the broadcasts, into local_
};

}  // namespace trainsys
