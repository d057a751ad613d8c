#include "trainsys/model/positions.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include <cmath>
#include <limits>

namespace trainsys {
namespace {

constexpr double kTheta = 10'000;

// [context, D / 2] complex128, the K / 2 turns of a head repeated for each
// head: the product with x then runs over one contiguous row of all heads
// instead of H rows of K / 2 numbers.
at::Tensor Turns(int64_t context, int64_t heads, int64_t head_dim) {
  const int64_t pairs = head_dim / 2;
  at::Tensor turns = at::empty({context, heads, pairs, 2}, at::kDouble);
  double* out = turns.data_ptr<double>();
  for (int64_t t = 0; t < context; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle =
            t * std::pow(kTheta, -2.0 * i / static_cast<double>(head_dim));
        *out++ = std::cos(angle);
        *out++ = std::sin(angle);
      }
    }
  }
  return at::view_as_complex(turns).view({context, heads * pairs});
}

bool IsDouble(const at::Tensor& x) { return x.scalar_type() == at::kDouble; }

}  // namespace

Positions::Positions(int64_t context, int64_t heads, int64_t head_dim)
    : turns_f64_(Turns(context, heads, head_dim)) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  turns_f32_ = turns_f64_.to(at::kComplexFloat);
  mask_f64_ = at::full({context, context}, kNever, at::kDouble).triu(1);
  mask_f32_ = mask_f64_.to(at::kFloat);
}

at::Tensor Positions::Rotate(const at::Tensor& x) const {
  const at::Tensor& all = IsDouble(x) ? turns_f64_ : turns_f32_;
  const int64_t rows = x.size(0), length = x.size(1), dim = x.size(2);
  const at::Tensor turns = all.narrow(0, 0, length);  // [T, D/2]
  const at::Tensor points =                           // [B, T, D/2]
      at::view_as_complex(x.view({rows, length, dim / 2, 2}));
  return at::view_as_real(points.mul(turns)).view({rows, length, dim});
}

at::Tensor Positions::CausalMask(const at::Tensor& x) const {
  const at::Tensor& all = IsDouble(x) ? mask_f64_ : mask_f32_;
  return all.narrow(0, 0, x.size(1)).narrow(1, 0, x.size(1));
}

}  // namespace trainsys
