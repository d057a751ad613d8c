// How the learning rate changes over a run. Pure.
#pragma once

#include <cstdint>

namespace trainsys {

// The lr's factor grows evenly over the first warmup_steps steps, from
// 1 / warmup_steps at step 0 to 1 at step warmup_steps - 1, and falls from
// there along half a cosine to min_factor at step total_steps - 1, where it
// stays. Without warm-up it is 1 at step 0. It is 1 at one step only.
//
// Example:
//   SetLr(options, lr * WarmupCosine{100, 2000, 0.1}.Factor(step));
struct WarmupCosine {
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double min_factor = 0;

  // step: from 0.
  // Errors: InvalidArgument for a negative step, and as Validate.
  double Factor(int64_t step) const;
};

// Errors: InvalidArgument unless 0 <= warmup_steps <= total_steps, total_steps
// is at least 1, and min_factor lies in [0, 1].
void Validate(const WarmupCosine& schedule);

}  // namespace trainsys
