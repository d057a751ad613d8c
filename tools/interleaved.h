// Times variants of one thing against each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/record/clock.h"

namespace trainsys {

// Runs all variants in turn, once to warm up and then `turns` times, every
// other turn backwards, so that what drifts drifts for all.
// Result: each variant's median time. Units: milliseconds.
inline std::vector<double> InterleavedMs(
    const std::vector<std::function<void()>>& variants, int turns) {
  std::vector<std::vector<double>> ms(variants.size());
  for (int turn = -1; turn < turns; ++turn) {
    for (size_t i = 0; i < variants.size(); ++i) {
      const size_t v = turn % 2 == 0 ? i : variants.size() - 1 - i;
      const int64_t began_ns = collectives::NowNs();
      variants[v]();
      const int64_t took_ns = collectives::NowNs() - began_ns;
      if (turn >= 0) ms[v].push_back(static_cast<double>(took_ns) / 1e6);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& times : ms) {
    std::sort(times.begin(), times.end());
    medians.push_back(times[times.size() / 2]);
  }
  return medians;
}

}  // namespace trainsys
