// Times variants of one thing against each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/record/clock.h"

namespace trainsys {

// Which of `n` variants is the i-th of a turn: every other turn backwards, so
// that what drifts drifts for all; and each two turns from another one on, so
// that all run twice in a row, on warm caches, as often. `turn`: from 0.
inline size_t VariantAt(int turn, size_t i, size_t n) {
  const size_t shift = (static_cast<size_t>(turn) + 1) / 2;
  return ((turn % 2 == 0 ? i : n - 1 - i) + shift) % n;
}

// Runs all variants in turn (VariantAt), once to warm up and then `turns`
// times. Result: of each variant the times of its turns, in order, so that
// those of one turn can be set against each other. Units: milliseconds.
inline std::vector<std::vector<double>> InterleavedMs(
    const std::vector<std::function<void()>>& variants, int turns,
    const std::function<void(int turn)>& before_turn = {}) {
  std::vector<std::vector<double>> ms(variants.size());
  for (int turn = -1; turn < turns; ++turn) {
    if (before_turn) before_turn(turn);
    for (size_t i = 0; i < variants.size(); ++i) {
      const size_t v = VariantAt(turn + 1, i, variants.size());
      const int64_t began_ns = collectives::NowNs();
      variants[v]();
      const int64_t took_ns = collectives::NowNs() - began_ns;
      if (turn >= 0) ms[v].push_back(static_cast<double>(took_ns) / 1e6);
    }
  }
  return ms;
}

// So far from the least value to the largest, in rank; between two ranks on
// the line between their values, so that low and high are treated alike.
inline double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] +
         (at - static_cast<double>(below)) * (values[above] - values[below]);
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
