#include "trainsys/optim/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "collectives/errors.h"

namespace trainsys {

using collectives::InvalidArgument;

void Validate(const WarmupCosine& s) {
  if (s.total_steps < 1 || s.warmup_steps < 0 ||
      s.warmup_steps > s.total_steps) {
    throw InvalidArgument(fmt::format(
        "schedule: {} warm-up steps of {} in all; expected at least one step, "
        "and warm-up between none and all of them",
        s.warmup_steps, s.total_steps));
  }
  if (!(s.min_factor >= 0 && s.min_factor <= 1)) {
    throw InvalidArgument(fmt::format(
        "schedule: min_factor is {}; expected 0 to 1", s.min_factor));
  }
}

double WarmupCosine::Factor(int64_t step) const {
  Validate(*this);
  if (step < 0) {
    throw InvalidArgument(
        fmt::format("schedule: step is {}; expected at least 0", step));
  }
  const int64_t peak = std::max<int64_t>(warmup_steps - 1, 0);
  if (step < peak) {
    return static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  if (step == peak) return 1;
  const int64_t last = total_steps - 1;
  if (step >= last) return min_factor;
  const double passed =
      static_cast<double>(step - peak) / static_cast<double>(last - peak);
  const double cosine = (1 + std::cos(std::numbers::pi * passed)) / 2;
  return min_factor + (1 - min_factor) * cosine;
}

}  // namespace trainsys
