// What "equals one rank" is measured against.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainsys/optim/optimizer.h"
#include "trainsys/optim/optimizer_options.h"

namespace trainsys {

// libtorch's optimizers behind our interface.
std::unique_ptr<Optimizer> LibtorchSGD(std::vector<at::Tensor> parameters,
                                       double lr);
std::unique_ptr<Optimizer> LibtorchAdamW(std::vector<at::Tensor> parameters,
                                         const AdamWOptions& options);

// Reference A: one rank runs the local batches of `ranks` ranks one after
// another, adds up their gradients in rank order and divides once.
// `loss_of(step, rank)` is that rank's local loss. Result: the parameters,
// updated; data-parallel training must give equal bits.
void TrainInMicroSteps(
    const std::vector<at::Tensor>& parameters, Optimizer& optimizer,
    int64_t steps, int ranks,
    const std::function<at::Tensor(int64_t step, int rank)>& loss_of);

// Reference B: the whole batch at once.
void TrainOnWholeBatch(Optimizer& optimizer, int64_t steps,
                       const std::function<at::Tensor(int64_t step)>& loss_of);

}  // namespace trainsys
