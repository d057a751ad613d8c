#include "trainsys/terminal/units.h"

#include <fmt/core.h>

#include <cstddef>
#include <iterator>

namespace trainsys {

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  constexpr double kKibi = 1024;
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / kKibi;
  size_t unit = 0;
  // What would be shown as 1024 is 1 of the next.
  while (value >= kKibi - 0.5 && unit + 1 < std::size(kUnits)) {
    value /= kKibi;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

}  // namespace trainsys
