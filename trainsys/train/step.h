// One training step of one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "collectives/communicator.h"
#include "trainsys/ddp/data_parallel.h"
#include "trainsys/optim/optimizer.h"

namespace trainsys {

struct StepParts {
  std::function<at::Tensor()> loss_of_batch;  // the forward pass
  DataParallel& ddp;
  Optimizer& optimizer;
  collectives::Communicator& comm;
  // Asked at the step's end, on each rank by itself; none: never.
  std::function<bool()> wants_to_stop = {};
};

struct StepResult {
  double loss = 0;         // mean over ranks, the same on all of them
  bool must_stop = false;  // a rank wants to; the same on all of them
  // Saved for backward when forward was done; see SavedBytesScope.
  int64_t saved_raw_bytes = 0;
  int64_t saved_distinct_bytes = 0;
};

// A collective. Marks the phases "step", "forward", "backward", "gradient
// sync" and "optimizer" in the rank's records, and "after" each in its ledger.
StepResult TrainStep(const StepParts& parts, int64_t step);

}  // namespace trainsys
