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
// Result: of each variant the times of its turns, in order, so that those of
// one turn can be set against each other. Units: milliseconds.
inline std::vector<std::vector<double>> InterleavedMs(
    const std::vector<std::function<void()>>& variants, int turns,
    const std::function<void(int turn)>& before_turn = {}) {
  std::vector<std::vector<double>> ms(variants.size());
  for (int turn = -1; turn < turns; ++turn) {
    if (before_turn) before_turn(turn);
    for (size_t i = 0; i < variants.size(); ++i) {
      const size_t v = turn % 2 == 0 ? i : variants.size() - 1 - i;
      const int64_t began_ns = collectives::NowNs();
      variants[v]();
      const int64_t took_ns = collectives::NowNs() - began_ns;
      if (turn >= 0) ms[v].push_back(static_cast<double>(took_ns) / 1e6);
    }
  }
  return ms;
}

// The smallest value that at least `share` of them do not exceed.
inline double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(share * last + 0.5)];
}

// What it takes when nothing disturbs: on a shared machine the quickest turns
// agree where medians do not.
inline double Best(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

inline double Median(std::vector<double> values) {
  return Quantile(std::move(values), 0.5);
}

// The spread of one figure over the turns.
struct Quartiles {
  double low = 0, median = 0, high = 0;
};

// Of figure(0), figure(1), ..., one a turn.
template <typename Figure>
Quartiles OverTurns(size_t turns, Figure figure) {
  std::vector<double> values;
  for (size_t turn = 0; turn < turns; ++turn) values.push_back(figure(turn));
  return {Quantile(values, 0.25), Median(values), Quantile(values, 0.75)};
}

}  // namespace trainsys
