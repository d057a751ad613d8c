#include "trainsys/budget/published_compute.h"

namespace trainsys {

double TrainingFlops(double parameters, double tokens) {
  return 6 * parameters * tokens;
}

double Mfu(const TokenFlops& token, double tokens_per_s, double peak_flops) {
  return tokens_per_s * token.Total() / peak_flops;
}

double FullRecomputeFlopRatio() {
  constexpr double kForward = 2;  // FLOPs a parameter and token
  constexpr double kBackward = 4;
  return (2 * kForward + kBackward) / (kForward + kBackward);
}

double SelectiveRecomputeFlopRatio(double s, double h) {
  return 1 + s / (6 * h);
}

}  // namespace trainsys
