// The one clock of a machine's records, and how another machine's compares.
#pragma once

#include <chrono>
#include <cstdint>

namespace collectives {

// Nanoseconds of the machine's steady clock, comparable between threads.
inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A rank's clock minus rank 0's, and how far that may be off at most. Ranks of
// one process share a clock: 0 and 0.
struct ClockEstimate {
  int64_t offset_ns = 0;
  int64_t error_ns = 0;
};

}  // namespace collectives
