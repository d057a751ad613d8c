#include "trainsys/svg/axis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace trainsys {
namespace {

double RoundStep(double length, int count) {
  const double rough = length / std::max(count, 1);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= rough * 0.999) return times * power;
  }
  return 10 * power;
}

}  // namespace

double Axis::At(double figure) const {
  const double length = to_ - from_;
  const double share = length == 0 ? 0 : (figure - from_) / length;
  return begin_ + std::clamp(share, 0.0, 1.0) * (end_ - begin_);
}

std::vector<double> RoundTicks(double from, double to, int count) {
  if (!(to > from)) return {from};
  const double step = RoundStep(to - from, count);
  const double slack = step * 1e-6;
  std::vector<double> ticks;
  for (double i = std::ceil((from - slack) / step); i * step <= to + slack; ++i)
    ticks.push_back(i * step + 0.0);  // never -0
  return ticks;
}

Stretch RoundStretch(double from, double to, int count) {
  if (!(to > from)) return {from, from + 1};
  const double step = RoundStep(to - from, count);
  return {std::floor(from / step) * step, std::ceil(to / step) * step};
}

bool Box::Meets(const Box& other) const {
  return left < other.left + other.width && other.left < left + width &&
         top < other.top + other.height && other.top < top + height;
}

namespace {

// The area that both cover.
double Shared(const Box& a, const Box& b) {
  if (!a.Meets(b)) return 0;
  const double width =
      std::min(a.left + a.width, b.left + b.width) - std::max(a.left, b.left);
  const double height =
      std::min(a.top + a.height, b.top + b.height) - std::max(a.top, b.top);
  return width * height;
}

}  // namespace

Box PlaceFree(const std::vector<Box>& tries, std::vector<Box>& taken) {
  const auto covered = [&taken](const Box& box) {
    double area = 0;
    for (const Box& other : taken) area += Shared(box, other);
    return area;
  };
  taken.push_back(*std::min_element(
      tries.begin(), tries.end(),
      [&](const Box& a, const Box& b) { return covered(a) < covered(b); }));
  return taken.back();
}

std::string BinaryBytes(int64_t bytes) {
  if (bytes != 0 && bytes % (1 << 20) == 0) {
    return fmt::format("{} MiB", bytes >> 20);
  }
  if (bytes != 0 && bytes % (1 << 10) == 0) {
    return fmt::format("{} KiB", bytes >> 10);
  }
  return fmt::format("{} bytes", bytes);
}

}  // namespace trainsys
