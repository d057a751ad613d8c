// One rank trains, and every step is held against the references.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/checks/checks.h"
#include "trainsys/checks/diagnosis.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/checks/trajectory.h"
#include "trainsys/ddp/data_parallel.h"
#include "trainsys/optim/optimizer.h"

namespace trainsys {

// The ranks' models differ at first: the seed is this plus the rank. Rank 0's
// is the references'.
// AdamW's first step is lr * g / (|g| + eps): where a gradient is as small as
// eps, rounding noise becomes a visible step of up to lr, in anybody's f32. Of
// the seeds tried, these keep all gradients clear of that.
inline constexpr uint64_t kModelSeed = 320;
inline constexpr uint64_t kDataSeed = 13;

// What a rank trains with.
struct TrainingParts {
  std::function<std::shared_ptr<SmallModel>(uint64_t seed)> model;
  std::function<std::unique_ptr<DataParallel>(SmallModel&,
                                              collectives::Communicator&)>
      ddp;
  std::function<std::unique_ptr<Optimizer>(std::vector<at::Tensor>,
                                           collectives::Communicator&)>
      optimizer;
};

struct References {
  Trajectory a;
  std::vector<at::Tensor> b;  // parameters at the end
};

// Of all ranks, in rank order.
struct AllRanks {
  std::vector<RankFacts> facts;
  // How the buckets of our BucketedDDP break their order; empty if they do not.
  std::vector<std::string> order_violations;
};

// A collective. `real`: `options.fault` does not break what this posts there.
AllRanks TrainRank(const TrainingParts& parts, const References& references,
                   const CheckOptions& options,
                   collectives::Communicator& real);

}  // namespace trainsys
