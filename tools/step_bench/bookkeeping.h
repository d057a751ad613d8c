// What BucketedDDP's hooks, the records and the memory ledger cost.
#pragma once

#include <cstdint>

#include "tools/step_bench/rungs.h"
#include "trainsys/measure/interleaved.h"
#include "trainsys/terminal/progress.h"

namespace trainsys {

struct Bookkeeping {
  static constexpr int kParameters = 1000;  // of one element each
  static constexpr int kPhases = 5;         // that TrainStep records

  // What BucketedDDP adds on one rank, pair by pair. Units: microseconds a
  // parameter.
  double empty_hook_us = 0;  // what libtorch takes to call any hook
  double backward_us = 0;    // its hooks, that included
  double step_us = 0;        // and before and after backward
  // On one rank. `records`: of a step with BucketedDDP.
  uint64_t records = 0;
  double record_ns = 0;  // to make and complete one
  double step_ms = 0;    // of the whole step with BucketedDDP
  double RecorderPercent() const {
    return 100 * static_cast<double>(records + kPhases) * record_ns /
           (step_ms * 1e6);
  }
  // The ledger with its saved bytes, in percent of the step without.
  Quartiles ledger_percent;
};

// Call: after all other timings, for a ledger stays in front of libtorch's
// allocator. `what`: its step on one rank.
// Errors: Interrupted.
Bookkeeping MeasureBookkeeping(StepCase what, int turns, Progress& progress);

}  // namespace trainsys
