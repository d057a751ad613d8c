#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace trainsys {

// What attention knows of positions: the rotary angles and the causal mask.
// Computed once in f64 and rounded once to f32, so that an f64 model gets f64
// angles. Not part of the module's parameters or buffers: nothing to train, to
// broadcast or to save.
//
// Letters: B rows, T positions, H heads, K width of a head, D = H * K.
// Threads: any thread, once constructed.
// Dtypes: f32 and f64; the model refuses others.
class Positions {
 public:
  // `head_dim` is K and even; T may be up to `context`.
  Positions(int64_t context, int64_t heads, int64_t head_dim);

  // Turns each neighbouring pair (x[2i], x[2i + 1]) of each head, seen as a
  // point of the plane, by the angle t * theta^(-2i / K) with theta = 10,000.
  // Shape: [B, T, D] -> [B, T, D]
  // Source: Su et al., "RoFormer", section 3.2.
  at::Tensor Rotate(const at::Tensor& x) const;

  // Zero where position s may be seen from position t (s <= t), else -inf.
  // Shape: [T, T] of the dtype and the T of `x` [B, T, D]
  at::Tensor CausalMask(const at::Tensor& x) const;

  // The tensors whose storages Rotate() and CausalMask() read.
  std::vector<at::Tensor> tables() const {
    return {turns_f32_, turns_f64_, mask_f32_, mask_f64_};
  }

 private:
  at::Tensor turns_f32_, turns_f64_;  // [context, D / 2], complex
  at::Tensor mask_f32_, mask_f64_;    // [context, context]
};

}  // namespace trainsys
