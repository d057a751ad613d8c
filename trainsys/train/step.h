// One training step of one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "collectives/communicator.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/optim/optimizer.h"

namespace trainsys {

struct StepParts {
  std::function<at::Tensor()> loss_of_batch;  // the forward pass
  BucketedDDP& ddp;
  Optimizer& optimizer;
  collectives::Communicator& comm;
};

// A collective. Result: the loss, mean over ranks, the same on all of them.
// Marks the phases "step", "forward", "backward", "gradient sync" and
// "optimizer" in the rank's records.
double TrainStep(const StepParts& parts, int64_t step);

}  // namespace trainsys
