#include "trainsys/optim/exact_sum.h"

#include <bit>
#include <cmath>

namespace trainsys {
namespace {

constexpr size_t kPlusInfinities = ExactSum::kDigits;
constexpr size_t kMinusInfinities = ExactSum::kDigits + 1;
constexpr size_t kNaNs = ExactSum::kDigits + 2;
constexpr int kLowestExponent = -1074;

}  // namespace

void ExactSum::CountNotFinite(double x) {
  ++parts_[std::isnan(x) ? kNaNs : x > 0 ? kPlusInfinities : kMinusInfinities];
}

void ExactSum::Normalise() {
  int64_t carry = 0;
  for (size_t i = 0; i + 1 < kDigits; ++i) {
    const int64_t part = parts_[i] + carry;
    carry = part >> 32;  // rounds down: what stays is not negative
    parts_[i] = part & static_cast<int64_t>(kDigitMask);
  }
  parts_[kDigits - 1] += carry;
  num_pending_ = 0;
}

std::span<int64_t> ExactSum::parts() {
  Normalise();
  return parts_;
}

// Of normalised digits that are not negative.
double ExactSum::RoundMagnitude() const {
  if (parts_[kDigits - 1] > 0) return std::numeric_limits<double>::infinity();
  size_t first = kDigits - 1;
  while (first > 0 && parts_[first] == 0) --first;
  const auto digit = [this, first](size_t below_first) {
    return first < below_first
               ? uint64_t{0}
               : static_cast<uint64_t>(parts_[first - below_first]);
  };
  if (digit(0) == 0) return 0;
  // The 64 bits from the highest one on; what follows decides a tie only, so
  // one bit stands for it.
  const int zeros = std::countl_zero(static_cast<uint32_t>(digit(0)));
  uint64_t bits = (digit(0) << 32 | digit(1)) << zeros;
  bits |= digit(2) >> (32 - zeros);
  bool is_more = (digit(2) << zeros & kDigitMask) != 0;
  for (size_t i = 3; i <= first; ++i) is_more = is_more || digit(i) != 0;
  const int exponent =
      32 * (static_cast<int>(first) - 1) - zeros + kLowestExponent;
  return std::ldexp(static_cast<double>(bits | (is_more ? 1 : 0)), exponent);
}

double ExactSum::Round() const {
  const double inf = std::numeric_limits<double>::infinity();
  const bool has_plus = parts_[kPlusInfinities] > 0;
  const bool has_minus = parts_[kMinusInfinities] > 0;
  if (parts_[kNaNs] > 0 || (has_plus && has_minus)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (has_plus || has_minus) return has_plus ? inf : -inf;

  ExactSum sum = *this;
  sum.Normalise();
  const bool is_negative = sum.parts_[kDigits - 1] < 0;
  if (is_negative) {
    for (size_t i = 0; i < kDigits; ++i) sum.parts_[i] = -sum.parts_[i];
    sum.Normalise();
  }
  const double magnitude = sum.RoundMagnitude();
  return is_negative ? -magnitude : magnitude;
}

}  // namespace trainsys
