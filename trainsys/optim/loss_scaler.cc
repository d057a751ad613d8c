#include "trainsys/optim/loss_scaler.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>

#include "collectives/errors.h"

namespace trainsys {
namespace {

bool IsNormalF32(double x) {
  return x >= std::numeric_limits<float>::min() &&
         x <= std::numeric_limits<float>::max();
}

void Check(bool is_good, const char* name, double value,
           const std::string& expected) {
  if (is_good) return;
  throw collectives::InvalidArgument(
      fmt::format("loss scale: {} is {}; expected {}", name, value, expected));
}

}  // namespace

void Validate(const LossScalerOptions& o) {
  Check(IsNormalF32(o.initial_scale), "initial_scale", o.initial_scale,
        "a positive number that f32 holds");
  Check(std::isfinite(o.growth) && o.growth > 1, "growth", o.growth,
        "a finite number above 1");
  Check(o.backoff > 0 && o.backoff < 1, "backoff", o.backoff,
        "more than 0 and less than 1");
  Check(o.growth_interval >= 1, "growth_interval",
        static_cast<double>(o.growth_interval), "at least 1");
}

LossScaler::LossScaler(const LossScalerOptions& options)
    : options_(options), scale_(options.initial_scale) {
  Validate(options);
}

void LossScaler::Update(bool is_finite) {
  if (is_finite && ++num_finite_ < options_.growth_interval) return;
  num_finite_ = 0;
  const double next = scale_ * (is_finite ? options_.growth : options_.backoff);
  if (IsNormalF32(next)) scale_ = next;
}

}  // namespace trainsys
