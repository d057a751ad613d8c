// The exact sum of doubles, whatever their order.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace trainsys {

// A fixed-point number over the whole range of doubles, from 2^-1074 up. So it
// depends neither on the order of the numbers nor on how they are dealt out to
// threads and ranks, and nothing cancels.
//
//   value = sum of parts[i] * 2^(32 i - 1074), for the parts below kDigits;
//   the last three parts count +inf, -inf and NaN.
//
// The sum of several ExactSums is the element-wise sum of their parts, so an
// integer sum all-reduce over parts() adds up all ranks'.
// Limits: exact for up to 2^51 numbers on each of up to 4096 ranks; what was
//   all-reduced may be added to and all-reduced again, within that.
// Threads: one at a time.
//
// Example:
//   ExactSum sum;
//   for (double x : mine) sum.Add(x);
//   comm.AllReduce(AsBuffer(sum.parts()), ReduceOp::kSum, "norm");
//   double total = sum.Round();  // the same on all ranks
class ExactSum {
 public:
  class Window;

  // 66 parts hold the bits of any double; one more holds what is carried out.
  static constexpr size_t kDigits = 67;
  static constexpr size_t kParts = kDigits + 3;

  // Cost: three additions to memory.
  void Add(double x) {
    const auto bits = std::bit_cast<uint64_t>(x);
    const auto exponent = static_cast<unsigned>(bits >> kMantissaBits) & 0x7ff;
    if (exponent == 0x7ff) return CountNotFinite(x);
    // Denormals have the unit of exponent 1 and no hidden bit.
    const uint64_t hidden = exponent == 0 ? 0 : 1;
    AddBits((bits & kMantissaMask) | hidden << kMantissaBits,
            exponent - static_cast<unsigned>(hidden),
            static_cast<int64_t>(bits) >> 63);
  }

  // What makes up the sum, to be sent, added to or replaced as a whole.
  // Lifetime: until the next call.
  std::span<int64_t> parts();

  // Result: the double nearest to the exact sum, the even one of two; +0 for
  // 0, an infinity from 2^1024 - 2^970 on. With NaN or both infinities among
  // the numbers NaN, with one of them that.
  double Round() const;

 private:
  static constexpr int kMantissaBits = 52;
  static constexpr uint64_t kMantissaMask = (uint64_t{1} << kMantissaBits) - 1;
  static constexpr uint64_t kDigitMask = 0xffff'ffff;
  // Each Add changes a part by less than 2^32: so it stays below 2^62, also
  // when it began as the sum of 4096 ranks' normalised parts.
  static constexpr int64_t kMaxPending = int64_t{1} << 29;

  static_assert(std::numeric_limits<double>::is_iec559);

  // Adds bits * 2^(shift - 1074), or with `sign` -1 (else 0) subtracts it.
  void AddBits(uint64_t bits, unsigned shift, int64_t sign) {
    if (num_pending_ == kMaxPending) Normalise();
    ++num_pending_;
    const uint64_t low = bits << shift % 32;
    const uint64_t high = (bits >> 1) >> (63 - shift % 32);
    int64_t* part = &parts_[shift / 32];
    // -x is ~x + 1: no branch.
    part[0] += (static_cast<int64_t>(low & kDigitMask) ^ sign) - sign;
    part[1] += (static_cast<int64_t>(low >> 32) ^ sign) - sign;
    part[2] += (static_cast<int64_t>(high) ^ sign) - sign;
  }

  void CountNotFinite(double x);
  // Brings all digits but the last, which has the sign, into [0, 2^32).
  void Normalise();
  double RoundMagnitude() const;

  std::array<int64_t, kParts> parts_{};
  int64_t num_pending_ = 0;  // Adds since the digits were normalised
};

// Adds many numbers that are not negative to a sum, in fewer steps than Add
// where they are of like magnitude: those within 2^30 of `like` meet in one
// integer of 128 bits first.
// Limits: kMaxAdds numbers.
// Lifetime: `sum` outlives it; until it ends some of the numbers are not in it.
class ExactSum::Window {
 public:
  static constexpr size_t kMaxAdds = size_t{1} << 13;

  Window(double like, ExactSum& sum)
      : sum_(sum),
        lowest_(
            std::clamp(ExponentOf(like), kHalfWidth + 1, 0x7feu - kHalfWidth) -
            kHalfWidth) {}
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() {
    sum_.AddBits(static_cast<uint64_t>(bits_), lowest_ - 1, 0);
    sum_.AddBits(static_cast<uint64_t>(bits_ >> 64), lowest_ + 63, 0);
  }

  void Add(double x) {
    const unsigned shift = ExponentOf(x) - lowest_;  // huge if below
    if (shift >= 2 * kHalfWidth) [[unlikely]]
      return AddOutside(x, sum_);
    const uint64_t mantissa = (std::bit_cast<uint64_t>(x) & kMantissaMask) |
                              uint64_t{1} << kMantissaBits;
    bits_ += static_cast<unsigned __int128>(mantissa) << shift;
  }

 private:
  // 53 bits of mantissa, a shift below 60, and 2^13 of them: below 2^126.
  static constexpr unsigned kHalfWidth = 30;

  // Not inlined: bits_ then stays in registers.
  [[gnu::noinline]] static void AddOutside(double x, ExactSum& sum) {
    sum.Add(x);
  }

  // Of negative numbers and those not finite one outside of the window.
  static unsigned ExponentOf(double x) {
    return static_cast<unsigned>(std::bit_cast<uint64_t>(x) >> kMantissaBits);
  }

  ExactSum& sum_;
  const unsigned lowest_;       // biased exponent
  unsigned __int128 bits_ = 0;  // times 2^(lowest_ - 1075)
};

}  // namespace trainsys
