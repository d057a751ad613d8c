// Optimizers on flat memory, one pass, no tensors: a shard of a flat buffer is
// updated exactly as the whole would be.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "trainsys/optim/optimizer_options.h"

namespace trainsys {

// Shape: param, grad and the first NumMoments moments of equal length, which
// may be 0; the other moments may be empty. They must not overlap.
template <typename T>
struct Elements {
  std::span<T> param;
  std::span<const T> grad;
  std::array<std::span<T>, 2> moments;
};

// How far libtorch's AdamW, Adam and SGD are from UpdateElements: libtorch
// fuses some additions on machines with AVX2, so over 20 steps a parameter that
// stays away from 0 differed by up to 3 units in its last place; without AVX2
// by none.
inline constexpr int kMaxUlpsToTorch = 4;

// One update of `param` and of the moments. With g = gradient_scale * grad:
//
// AdamW:  p *= 1 - lr * weight_decay
//         m  = beta1 * m + (1 - beta1) * g
//         v  = beta2 * v + (1 - beta2) * g * g
//         d  = sqrt(v) / sqrt(1 - beta2^step) + eps
//         p -= lr / (1 - beta1^step) * m / d
// Adam:   g += weight_decay * p; m, v, d and p as above
// SGD:    g += weight_decay * p, or p *= 1 - lr * weight_decay if decoupled
//         m  = g at step 1, then momentum * m + (1 - dampening) * g
//         p -= lr * m; with nesterov lr * (g + momentum * m); without
//         momentum lr * g, and no m
//
// With weight_decay 0 its line changes no bit.
// step: 1 for the first update, where the moments of AdamW and Adam are zero.
// gradient_scale: rounded to T, then one multiplication an element, so that 1
//   changes no bit and any other equals scaling the gradients beforehand.
// Result: each element depends on its own numbers only, with the same bits
//   wherever the range is cut and however it is aligned. Constants are computed
//   in double and rounded to T once. libtorch's within kMaxUlpsToTorch.
// T: float or double.
// Cost: memory-bound; AdamW and Adam: four reads and three writes an element.
// Threads: any thread.
// Errors: InvalidArgument, nothing written: lengths differ, step < 1, options
//   that Validate refuses.
// Source: Loshchilov and Hutter 2019, "Decoupled Weight Decay
//   Regularization", algorithms 1 and 2, as torch::optim has them.
template <typename T>
void UpdateElements(const OptimizerOptions& options, int64_t step,
                    double gradient_scale, const Elements<T>& elements);

}  // namespace trainsys
