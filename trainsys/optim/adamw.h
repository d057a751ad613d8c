// AdamW on flat memory, one pass, no tensors: a shard of a flat buffer is
// updated exactly as the whole would be.
#pragma once

#include <cstdint>
#include <span>

namespace trainsys {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

// Errors: InvalidArgument unless lr, eps and weight_decay are finite and not
// negative and both betas lie in [0, 1).
void Validate(const AdamWOptions& options);

// One update of `param` and of the moments m and v, with decoupled decay:
//   p *= 1 - lr * weight_decay
//   m  = beta1 * m + (1 - beta1) * g
//   v  = beta2 * v + (1 - beta2) * g * g
//   p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
//
// Shape: all four of equal length, which may be 0. They must not overlap.
// step: 1 for the first update, where m and v are zero.
// Result: each element depends on its own four numbers only, with the same
//   bits wherever the range is cut and however it is aligned. Constants are
//   computed in double and rounded to T once.
// T: float or double.
// Cost: memory-bound, four reads and three writes an element.
// Threads: any thread.
// Errors: InvalidArgument, nothing written: lengths differ, step < 1, options
//   that Validate refuses.
// Source: Loshchilov and Hutter 2019, "Decoupled Weight Decay
//   Regularization", algorithm 2, as torch::optim::AdamW has it.
template <typename T>
void AdamWStep(const AdamWOptions& options, int64_t step, std::span<T> param,
               std::span<const T> grad, std::span<T> m, std::span<T> v);

}  // namespace trainsys
