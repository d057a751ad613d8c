// ZeRO-1's step, and what it is made of, on ranks as threads.
#pragma once

#include <cstdint>
#include <vector>

#include "trainsys/terminal/progress.h"

namespace trainsys {

struct ZeroCase {
  int64_t elems = 0;
  int tensors = 1;
  int ranks = 1;
};

// Units: milliseconds, of each turn, from the first rank's begin to the last
// one's end: with more ranks than cores some have not begun when others are
// done.
struct ZeroTimes {
  std::vector<double> step;    // update of the shard, all-gather in place
  std::vector<double> update;  // the same elements on the same cores, alone
  std::vector<double> gather;  // the same all-gather, alone
};

// All three in turn. Errors: Interrupted.
ZeroTimes TimeZeroSteps(const ZeroCase& what, int turns, Progress& progress);

// Parameters as a model's: `tensors` of nearly the same size, `elems` in all.
std::vector<int64_t> SizesOf(int64_t elems, int tensors);

}  // namespace trainsys
