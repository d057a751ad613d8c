#include "trainsys/optim/sum_of_squares.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

namespace trainsys {
namespace {

template <typename T>
constexpr size_t kUnit = 64 / sizeof(T);

// One register of AVX, two of SSE.
using FourDoubles [[gnu::vector_size(32)]] = double;

// The squares of four elements.
template <typename T>
[[gnu::always_inline]] inline void Square(const T* x, FourDoubles& squares) {
  squares = FourDoubles{static_cast<double>(x[0]), static_cast<double>(x[1]),
                        static_cast<double>(x[2]), static_cast<double>(x[3])};
  squares *= squares;
}

// Lane i adds the squares of elements i, i + 4, i + 8, ... in that order; then
// the lanes (0 + 2) + (1 + 3).
template <typename T>
[[gnu::always_inline]] inline double SumOfUnit(const T* unit) {
  FourDoubles lanes;
  Square(unit, lanes);
#pragma GCC unroll 4
  for (size_t i = 4; i < kUnit<T>; i += 4) {
    FourDoubles squares;
    Square(unit + i, squares);
    lanes += squares;
  }
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// Of whole units.
template <typename T>
[[gnu::always_inline]] inline void AddUnits(std::span<const T> values,
                                            ExactSum& sum) {
  constexpr size_t kMost = ExactSum::Window::kMaxAdds * kUnit<T>;
  while (!values.empty()) {
    const auto some = values.first(std::min(values.size(), kMost));
    double like = 0;
    for (size_t i = 0; i < some.size() && like == 0; i += kUnit<T>) {
      like = SumOfUnit(some.data() + i);
    }
    ExactSum::Window window(like, sum);
    for (size_t i = 0; i < some.size(); i += kUnit<T>) {
      window.Add(SumOfUnit(some.data() + i));
    }
    values = values.subspan(some.size());
  }
}

// The same numbers either way: no operation here depends on the width.
#if defined(__x86_64__)
template <typename T>
[[gnu::target("avx2")]] void AddUnitsWide(std::span<const T> values,
                                          ExactSum& sum) {
  AddUnits(values, sum);
}
#endif

template <typename T>
void AddAllUnits(std::span<const T> values, ExactSum& sum) {
#if defined(__x86_64__)
  static const bool is_wide = __builtin_cpu_supports("avx2");
  if (is_wide) return AddUnitsWide(values, sum);
#endif
  AddUnits(values, sum);
}

}  // namespace

template <typename T>
void AddSquares(std::span<const T> values, ExactSum& sum) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  const size_t whole = values.size() / kUnit<T> * kUnit<T>;
  AddAllUnits(values.first(whole), sum);
  std::array<T, kUnit<T>> padded{};
  std::copy(values.begin() + static_cast<std::ptrdiff_t>(whole), values.end(),
            padded.begin());
  sum.Add(SumOfUnit(padded.data()));
}

template void AddSquares<float>(std::span<const float>, ExactSum&);
template void AddSquares<double>(std::span<const double>, ExactSum&);

}  // namespace trainsys
