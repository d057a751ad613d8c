// What training should look like step by step: reference A, with what it had
// in between.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trainsys/checks/small_models.h"
#include "trainsys/optim/optimizer.h"

namespace trainsys {

struct Trajectory {
  struct Step {
    std::vector<std::vector<at::Tensor>> own;  // each rank's gradients
    std::vector<at::Tensor> mean;              // of them over ranks
    std::vector<at::Tensor> after;             // parameters
  };

  std::vector<at::Tensor> start;  // parameters
  std::vector<Step> steps;
};

// One rank runs the parts of `ranks` ranks in turn; see TrainInMicroSteps.
Trajectory TrainStepwise(SmallModel& model, Optimizer& optimizer,
                         const Samples& samples, int ranks, int64_t steps);

}  // namespace trainsys
