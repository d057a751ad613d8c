// ZeRO stage 1: each rank keeps 1/N of the optimizer state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/optim/adamw.h"
#include "trainsys/optim/optimizer.h"
#include "trainsys/zero/flat_adamw.h"

namespace trainsys {

// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training
// Trillion Parameter Models", SC 2020, section 5.1.
//
// The parameters become one flat buffer, cut evenly; each rank updates its own
// shard from the averaged gradients and all-gathers the result in place, on a
// channel of its own. With the same gradients the numbers are those of
// FlatAdamW on every rank, bit for bit.
//
// Cost: 8P/N bytes of f32 state a rank for P parameters (padding to 64 bytes a
// parameter included); P(N-1)/N elements sent a rank and step, beside the
// gradients' 2P(N-1)/N.
// Threads: the rank's own thread. Lifetime: `comm` outlives it.
// Errors: as FlatAdamW's; from Step, those of an all-gather.
//
// Example:
//   ZeRO1 optimizer(ddp.parameters(), comm, {.lr = 1e-2});
//   ddp.FinishGradientSync();
//   optimizer.Step();
class ZeRO1 final : public Optimizer {
 public:
  // A collective. `parameters`: the same on all ranks, in number, order, shape
  // and value.
  ZeRO1(std::vector<at::Tensor> parameters, collectives::Communicator& comm,
        const AdamWOptions& options);

  void ZeroGrad() override { local_.ZeroGrad(); }
  // StepShard, then GatherParameters.
  void Step() override;
  int64_t StateBytes() const override { return local_.StateBytes(); }

  // Updates this rank's shard only: until the gather the ranks differ.
  void StepShard() { local_.Step(); }
  void GatherParameters();

  const std::vector<Shard>& shards() const { return local_.shards(); }

 private:
  FlatAdamW local_;
  std::unique_ptr<collectives::Communicator> comm_;
};

}  // namespace trainsys
