// AdamW's update as libtorch operations, for parameters on an accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainsys/optim/adamw.h"

namespace trainsys {

// Shape: all [n], of one dtype and device. The formula of AdamWStep; bits are
// those of the device's operations. `step`: counted from 1.
void AdamWStepOnDevice(const AdamWOptions& options, int64_t step,
                       at::Tensor parameter, const at::Tensor& gradient,
                       at::Tensor m, at::Tensor v);

}  // namespace trainsys
