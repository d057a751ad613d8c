// Bytes of parameters, gradients and optimizer state on one rank. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "trainsys/budget/training_setup.h"
#include "trainsys/zero/shard_plan.h"

namespace trainsys {

inline constexpr int kMaxPlannedRanks = 1'000'000;

struct StatesOptions {
  int zero_stage = 0;  // 0: DDP; 1: + optimizer state, 2: + gradients,
                       // 3: + parameters are sharded
  Partition partition = Partition::kFlat;
  // Of stage 1. DDP all-reduces, stages 2 and 3 reduce-scatter.
  GradientReduction reduction = GradientReduction::kAllReduce;
  Precision precision = Precision::kF32;
  OptimizerKind optimizer = OptimizerKind::kAdam;
  int ranks = 1;
  int rank = 0;
  int64_t bucket_bytes = int64_t{25} << 20;

  bool AllReduces() const {
    return zero_stage == 0 ||
           (zero_stage == 1 && reduction == GradientReduction::kAllReduce);
  }
};

// Units: bytes.
struct StateBytes {
  int64_t used = 0;     // by the tensors' elements
  int64_t padding = 0;  // so that each tensor starts on 64 bytes

  int64_t allocated() const { return used + padding; }
};

struct ModelStates {
  StateBytes parameters;  // the flat buffer
  StateBytes gradients;   // the buckets, or from stage 2 on a shard
  StateBytes optimizer;   // masters and moments
  // Stage 2: two buffers of the largest bucket, one filled while the other is
  // reduced. Stage 3: two more, into which parameters are gathered.
  int64_t communication = 0;

  int64_t Padding() const {
    return parameters.padding + gradients.padding + optimizer.padding;
  }
  int64_t Total() const {
    return parameters.allocated() + gradients.allocated() +
           optimizer.allocated() + communication;
  }
};

// Exactly what BucketedDDP and the optimizers of trainsys/zero allocate and
// keep (stages 0 to 2, f32 and f64, every partition); the other combinations by
// the same rules. Step counts and other scalars are left out. The optimizer's
// shard, and from stage 2 on the gradients', has the elements of the
// parameters' one, padding included, in bytes of its own.
//
// `tensors`: elements of each parameter in registration order, tied ones once.
// Cost: O(tensors + ranks), a few hundred bytes a tensor.
// Errors: InvalidArgument for a stage other than 0 to 3, a rank outside 0 to
// ranks - 1, more than a million ranks, no tensors, a negative size, more than
// 1e15 elements in all, or bucket_bytes below 1.
ModelStates ModelStatesOf(std::span<const int64_t> tensors,
                          const StatesOptions& options);

// The rank whose states are the largest; the first of them, if several.
int LargestRank(std::span<const int64_t> tensors, const StatesOptions& options);

// Who owns what of the parameters' flat buffer, in bytes of their dtype.
// Errors: as ModelStatesOf, but for bucket_bytes.
ShardPlan ShardPlanOf(std::span<const int64_t> tensors,
                      const StatesOptions& options);

}  // namespace trainsys
