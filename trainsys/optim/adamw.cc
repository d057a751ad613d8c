#include "trainsys/optim/adamw.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

void CheckNotNegative(const char* name, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw InvalidArgument(fmt::format(
      "AdamW: {} is {}; expected a finite number of at least 0", name, value));
}

void CheckBeta(const char* name, double value) {
  if (value >= 0 && value < 1) return;  // false for NaN
  throw InvalidArgument(fmt::format(
      "AdamW: {} is {}; expected at least 0 and less than 1", name, value));
}

template <typename T>
struct Constants {
  Constants(const AdamWOptions& o, int64_t step)
      : keep(static_cast<T>(1 - o.lr * o.weight_decay)),
        beta1(static_cast<T>(o.beta1)),
        one_minus_beta1(static_cast<T>(1 - o.beta1)),
        beta2(static_cast<T>(o.beta2)),
        one_minus_beta2(static_cast<T>(1 - o.beta2)),
        sqrt_correction2(static_cast<T>(
            std::sqrt(1 - std::pow(o.beta2, static_cast<double>(step))))),
        eps(static_cast<T>(o.eps)),
        step_size(static_cast<T>(
            o.lr / (1 - std::pow(o.beta1, static_cast<double>(step))))) {}

  const T keep;
  const T beta1;
  const T one_minus_beta1;
  const T beta2;
  const T one_minus_beta2;
  const T sqrt_correction2;
  const T eps;
  const T step_size;
};

// Only correctly rounded operations, none fused or reordered: the vector body
// and the scalar tail that the compiler makes of this give the same bits.
template <typename T>
void Update(const Constants<T> c, size_t n, T* __restrict param,
            const T* __restrict grad, T* __restrict m, T* __restrict v) {
  for (size_t i = 0; i < n; ++i) {
    const T g = grad[i];
    const T m_new = c.beta1 * m[i] + c.one_minus_beta1 * g;
    const T v_new = c.beta2 * v[i] + c.one_minus_beta2 * g * g;
    const T denominator = std::sqrt(v_new) / c.sqrt_correction2 + c.eps;
    param[i] = c.keep * param[i] - c.step_size * m_new / denominator;
    m[i] = m_new;
    v[i] = v_new;
  }
}

}  // namespace

void Validate(const AdamWOptions& options) {
  CheckNotNegative("lr", options.lr);
  CheckNotNegative("eps", options.eps);
  CheckNotNegative("weight_decay", options.weight_decay);
  CheckBeta("beta1", options.beta1);
  CheckBeta("beta2", options.beta2);
}

template <typename T>
void AdamWStep(const AdamWOptions& options, int64_t step, std::span<T> param,
               std::span<const T> grad, std::span<T> m, std::span<T> v) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  Validate(options);
  if (step < 1) {
    throw InvalidArgument(
        fmt::format("AdamW: step is {}; the first update is step 1", step));
  }
  const size_t n = param.size();
  if (grad.size() != n || m.size() != n || v.size() != n) {
    throw InvalidArgument(fmt::format(
        "AdamW: lengths differ: param {}, grad {}, m {}, v {}; expected four "
        "equal ones",
        n, grad.size(), m.size(), v.size()));
  }
  Update(Constants<T>(options, step), n, param.data(), grad.data(), m.data(),
         v.data());
}

template void AdamWStep<float>(const AdamWOptions&, int64_t, std::span<float>,
                               std::span<const float>, std::span<float>,
                               std::span<float>);
template void AdamWStep<double>(const AdamWOptions&, int64_t, std::span<double>,
                                std::span<const double>, std::span<double>,
                                std::span<double>);

}  // namespace trainsys
