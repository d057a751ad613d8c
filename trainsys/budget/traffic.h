// Bytes that a rank sends in a step. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "trainsys/budget/model_states.h"

namespace trainsys {

// Units: bytes by rule (what a network would carry: 2S(N-1)/N for an
// all-reduce, S(N-1)/N for the others), padding included. Each collective
// rounds down by itself, as the recorder's.
struct StepTraffic {
  // Stages 0 and 1: one all-reduce a bucket and step, or in stage 1 one
  // reduce-scatter. From stage 2 on: a reduce-scatter a bucket and micro-step.
  int64_t gradients = 0;
  // Stages 1 and 2: what the ranks updated, flat by one all-gather, otherwise
  // by a broadcast of each rank's shard. Stage 3: twice a micro-step, for
  // forward and for backward.
  int64_t parameters = 0;

  // Stage 1, whichever it does: had each gradient gone to its owner only.
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
