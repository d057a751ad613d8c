// The optimizers' updates as libtorch operations, for parameters on an
// accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "trainsys/optim/optimizer_options.h"

namespace trainsys {

// Shape: all [n], of one dtype and device; moments that the optimizer does not
// need may be undefined. The formulas of UpdateElements, where `step` and
// `gradient_scale` are explained; bits are those of the device's operations.
// The gradient is left as it is.
void UpdateOnDevice(const OptimizerOptions& options, int64_t step,
                    double gradient_scale, at::Tensor parameter,
                    const at::Tensor& gradient,
                    std::array<at::Tensor, 2> moments);

}  // namespace trainsys
