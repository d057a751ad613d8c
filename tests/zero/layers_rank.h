// A rank that trains in one of the ways, and what it must end in.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "tests/zero/ways.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/proof/references.h"
#include "trainsys/zero/flat_optimizer.h"
#include "trainsys/zero/step_in_backward.h"
#include "trainsys/zero/zero_optimizer.h"

namespace trainsys {

inline constexpr GradientSharding kShardings[] = {GradientSharding::kNone,
                                                  GradientSharding::kReduced,
                                                  GradientSharding::kStored};
inline constexpr Partition kPartitions[] = {
    Partition::kFlat, Partition::kByTensor, Partition::kBalanced};

inline void OnRanks(int ranks, const collectives::RankFunction& fn) {
  collectives::RunRanksHere(
      {.ranks = ranks, .timeout = std::chrono::minutes(1)}, fn);
}

inline Way AfterBackward(GradientSharding sharding,
                         Partition partition = Partition::kFlat) {
  return {sharding, partition, Stepping::kAfterBackward};
}
inline Way InBackward(GradientSharding sharding,
                      Partition partition = Partition::kFlat) {
  return {sharding, partition, Stepping::kInBackward};
}
inline bool IsInBackward(const Way& way) {
  return way.stepping == Stepping::kInBackward;
}

// Over shards, after backward and inside it.
inline std::vector<Way> ShardedWays() {
  std::vector<Way> ways = WaysOf(Stepping::kAfterBackward);
  for (const Way& way : WaysOf(Stepping::kInBackward)) ways.push_back(way);
  return ways;
}

// One of either kind, with its groups.
class AnyOptimizer {
 public:
  AnyOptimizer(const Way& way, BucketedDDP& ddp,
               collectives::Communicator& comm,
               std::vector<ParameterGroup> groups) {
    if (IsInBackward(way)) {
      in_backward_ =
          std::make_unique<StepInBackward>(ddp, comm, std::move(groups));
    } else {
      after_ = std::make_unique<ZeROOptimizer>(ddp, comm, std::move(groups));
    }
  }

  Optimizer& operator*() {
    return after_ ? static_cast<Optimizer&>(*after_) : *in_backward_;
  }
  Optimizer* operator->() { return &**this; }
  std::vector<ParameterGroup>& groups() {
    return after_ ? after_->groups() : in_backward_->groups();
  }

 private:
  std::unique_ptr<ZeROOptimizer> after_;
  std::unique_ptr<StepInBackward> in_backward_;
};

inline constexpr AdamWOptions kAdamW{.lr = 1e-2, .weight_decay = 0.1};
// Of layers.h's parameters five buckets.
inline BucketedDDPOptions SmallBuckets() {
  return {.bucket_bytes = 256, .first_bucket_bytes = 64};
}

// A rank that trains layers.h's parameters in one of the ways, on inputs of its
// own in each step.
struct LayersRank {
  LayersRank(collectives::Communicator& comm, const Way& way,
             const BucketedDDPOptions& options = SmallBuckets(),
             const OptimizerOptions& optimizer_options = kAdamW)
      : comm(comm),
        parameters(AddLayers(module, 0)),
        ddp(module, comm, WithWay(options, way)),
        optimizer(way, ddp, comm, {{ddp.planned(), optimizer_options}}) {}

  at::Tensor Loss(int64_t step) const { return LossOf(parameters, step); }
  static int64_t InputNumber(int64_t step, int rank) {
    return 100 * step + rank;
  }
  at::Tensor LossOf(const Tensors& of, int64_t step) const {
    return LayersLoss(
        of, InputOf(static_cast<int>(InputNumber(step, comm.rank()))));
  }
  void Backward(int64_t step) {
    ddp.BeginForward();
    Loss(step).backward();
  }
  void Step(int64_t step) {
    optimizer->ZeroGrad();
    Backward(step);
    ddp.FinishGradientSync();
    optimizer->Step();
  }

  collectives::Communicator& comm;
  torch::nn::Module module;
  Tensors parameters;
  BucketedDDP ddp;
  AnyOptimizer optimizer;
};

// Reference A: what `steps` steps of such ranks must end in.
inline Tensors LayersTrained(int ranks, int64_t steps,
                             const OptimizerOptions& options = kAdamW) {
  torch::nn::Module module;
  Tensors parameters = AddLayers(module, 0);
  FlatOptimizer optimizer(parameters, options);
  TrainInMicroSteps(
      parameters, optimizer, steps, ranks, [&](int64_t step, int rank) {
        return LayersLoss(
            parameters,
            InputOf(static_cast<int>(LayersRank::InputNumber(step, rank))));
      });
  return parameters;
}

}  // namespace trainsys
