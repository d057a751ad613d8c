// Bytes that a rank sends in a step. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "trainsys/budget/model_states.h"

namespace trainsys {

// Units: bytes by rule (what a network would carry: 2S(N-1)/N for an
// all-reduce, S(N-1)/N for the others), padding included.
struct StepTraffic {
  // Stages 0 and 1: one all-reduce a bucket and step. From stage 2 on: a
  // reduce-scatter a bucket and micro-step.
  int64_t gradients = 0;
  // Stages 1 and 2: the all-gather of what the ranks updated. Stage 3: two a
  // micro-step, for forward and for backward.
  int64_t parameters = 0;

  // Stage 1, had the gradients been reduce-scattered, to their owners only.
  int64_t gradients_by_reduce_scatter = 0;
  // Stages 1 and 2, had the optimizer state been gathered in the parameters'
  // place, for every rank to update all parameters itself.
  int64_t optimizer_state_instead = 0;

  int64_t Total() const { return gradients + parameters; }
};

// Errors: InvalidArgument as ModelStatesOf, or for micro_steps below 1.
StepTraffic StepTrafficOf(std::span<const int64_t> tensors,
                          const StatesOptions& options,
                          int64_t micro_steps = 1);

}  // namespace trainsys
