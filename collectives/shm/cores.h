// The cores of this machine, as far as they decide who moves which data.
#pragma once

#include <sched.h>

#include <algorithm>
#include <thread>

namespace collectives {

inline int NumCores() {
  static const int cores =
      static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return cores;
}

// Where this thread runs now; it may run elsewhere at once.
inline int ThisCore() { return std::max(0, sched_getcpu()); }

}  // namespace collectives
