// ZeRO stages 1 and 2: each rank keeps its shard of the optimizer state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/optim/optimizer.h"
#include "trainsys/zero/shard_optimizer.h"

namespace trainsys {

// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training
// Trillion Parameter Models", SC 2020, section 5.
//
// The parameters become one flat buffer, cut by a ShardPlan; each rank updates
// its own shard from the averaged gradients and gives the others the result, on
// a channel of its own: by one all-gather in place where the cut is flat, else
// by a broadcast from each owner. The numbers are those of FlatOptimizer on
// every rank, bit for bit, whatever the stage and the cut. The stage is that of
// the gradients:
//   1, over all-reduced ones        any DataParallel
//   1, over reduce-scattered ones   BucketedDDP with GradientSharding::kReduced
//   2                               BucketedDDP with GradientSharding::kStored
//
// Cost: where the cut is flat K P/N bytes of state a rank for P parameters,
// with K = 8 for AdamW and Adam in f32 (padding to 64 bytes a parameter
// included); P(N-1)/N elements sent a rank and step, beside the gradients'
// 2P(N-1)/N or P(N-1)/N. Threads: the rank's own thread. Lifetime: `comm` and
// `ddp` outlive it. Errors: as ShardOptimizer's; from a step, those of the
// collectives.
//
// Example:
//   ZeROOptimizer optimizer(ddp, comm, AdamWOptions{.lr = 1e-2});
//   ddp.FinishGradientSync();
//   optimizer.Step();
class ZeROOptimizer final : public Optimizer {
 public:
  // A collective. `ddp`: its planned() parameters, cut as it says.
  ZeROOptimizer(BucketedDDP& ddp, collectives::Communicator& comm,
                const OptimizerOptions& options);
  ZeROOptimizer(BucketedDDP& ddp, collectives::Communicator& comm,
                std::vector<ParameterGroup> groups);
  // A collective. For gradients p.grad() that are the same on all ranks,
  // whoever averaged them. `parameters`: the same on all ranks, in number,
  // order, shape and value.
  ZeROOptimizer(std::vector<at::Tensor> parameters,
                collectives::Communicator& comm,
                const OptimizerOptions& options,
                Partition partition = Partition::kFlat);
  ZeROOptimizer(std::vector<ParameterGroup> groups,
                collectives::Communicator& comm,
                Partition partition = Partition::kFlat);

  void ZeroGrad() override { zero_grad_(); }
  // UpdateShard, then GatherParameters.
  void StepScaled(double gradient_scale) override;
  double GradNorm() override;
  int64_t StateBytes() const override { return local_.StateBytes(); }

  // Updates this rank's shard only: until the gather the ranks differ.
  void UpdateShard(double gradient_scale = 1);
  void GatherParameters();

  std::vector<ParameterGroup>& groups() { return local_.groups(); }
  const ShardPlan& plan() const { return local_.plan(); }

 private:
  void BroadcastFromOwners();

  ShardOptimizer local_;
  std::unique_ptr<collectives::Communicator> comm_;
  GradientPart gradient_;
  std::function<void()> zero_grad_;
};

}  // namespace trainsys
