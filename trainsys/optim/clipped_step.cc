#include "trainsys/optim/clipped_step.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "collectives/errors.h"

namespace trainsys {
namespace {

constexpr double kNormEps = 1e-6;

void CheckMaxNorm(double max_norm) {
  if (max_norm > 0) return;  // false for NaN
  throw collectives::InvalidArgument("max_norm is " + std::to_string(max_norm) +
                                     ", expected a number above 0");
}

double ScaleTo(double max_norm, double norm) {
  return std::min(max_norm / (norm + kNormEps), 1.0);  // NaN stays NaN
}

}  // namespace

ClippedStep StepClipped(Optimizer& optimizer, double max_norm) {
  CheckMaxNorm(max_norm);
  const double norm = optimizer.GradNorm();
  optimizer.StepScaled(ScaleTo(max_norm, norm));
  return {norm, true};
}

ClippedStep StepIfFinite(Optimizer& optimizer, LossScaler& scaler,
                         double max_norm) {
  CheckMaxNorm(max_norm);
  const double unscale = 1 / scaler.scale();
  const double norm = optimizer.GradNorm() * unscale;
  const bool is_finite = std::isfinite(norm);
  if (is_finite) optimizer.StepScaled(unscale * ScaleTo(max_norm, norm));
  scaler.Update(is_finite);
  return {norm, is_finite};
}

}  // namespace trainsys
