// Steps that look at the gradients' norm first.
#pragma once

#include <limits>

#include "trainsys/optim/loss_scaler.h"
#include "trainsys/optim/optimizer.h"

namespace trainsys {

struct ClippedStep {
  double grad_norm = 0;  // before clipping, the loss's scale divided out
  bool has_stepped = true;
};

// Steps with the gradients scaled down to a norm of `max_norm`, if theirs is
// above it: by max_norm / (norm + 1e-6), as torch::nn::utils::clip_grad_norm_
// has it. The gradients themselves stay as they are.
// Errors: InvalidArgument unless max_norm is above 0.
ClippedStep StepClipped(Optimizer& optimizer, double max_norm);

// For gradients of a loss that was multiplied by scaler.scale(): divides that
// out, clips, and steps; or, if any gradient of any rank is not finite, does
// not step. Either way the scaler learns of it: alike on all ranks.
ClippedStep StepIfFinite(
    Optimizer& optimizer, LossScaler& scaler,
    double max_norm = std::numeric_limits<double>::infinity());

}  // namespace trainsys
