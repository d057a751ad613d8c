// Times things that all ranks do together, in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/communicator.h"

namespace trainsys {

// Of all turns. Units: microseconds for one call.
struct Times {
  double median_us = 0;
  double p10_us = 0;
  double p90_us = 0;
};

// Errors: none; `us` has at least one time.
Times Summarize(std::vector<double> us);

struct Variant {
  // What each rank does, over and over. The same number of times on each.
  std::function<void()> call;
  // A turn's time is that of its slowest rank. Where ranks do not wait for one
  // another, it is from the first's start to the last's end: with more ranks
  // than cores some have not begun when others are done. One clock only.
  bool is_apart = false;
};

// How long to go on.
struct Pace {
  double budget_ms = 150;  // of all variants together, without calibration
};

// Every turn of every variant: a barrier, then as many calls back to back as
// last about 200 us (all ranks agree how many). Variants take turns, every
// other time backwards, so that what drifts drifts for all.
//
// Call: on every rank, with the same variants. Result: the same on every rank.
// Cost: the budget; but at least 5 turns, 3 if one of every variant takes over
// half a second, 1 if over four.
std::vector<Times> TimeInterleaved(collectives::Communicator& comm,
                                   const std::vector<Variant>& variants,
                                   const Pace& pace);

}  // namespace trainsys
