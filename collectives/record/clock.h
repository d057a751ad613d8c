// The one clock of all records.
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

}  // namespace collectives
