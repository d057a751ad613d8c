// All 65,536 patterns of both 16-bit floats against 1,000 partners each: every
// reduction of two is rounded once, to nearest, ties to even. The reference is
// the meaning of a pattern, not another conversion: what lies nearest to a
// number is read off the middles between neighbouring patterns.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tests/backend/backend.h"

namespace collectives {
namespace {

constexpr size_t kPatterns = 65536;

struct Format {
  DType dtype;
  int fraction_bits;
  int bias;

  bool IsNan(uint32_t pattern) const { return Size(pattern) > Infinity(); }
  uint32_t Infinity() const {
    return 0x7fffu >> fraction_bits << fraction_bits;
  }
  static uint32_t Size(uint32_t pattern) { return pattern & 0x7fff; }
};

constexpr Format kF16Format = {DType::kF16, 10, 15};
constexpr Format kBF16Format = {DType::kBF16, 7, 127};

// What a pattern stands for, infinity as the power of two that would follow
// the largest number.
double ValueOf(const Format& format, uint32_t pattern) {
  const uint32_t size = Format::Size(pattern);
  const auto exponent = static_cast<int>(size >> format.fraction_bits);
  const uint32_t one = 1u << format.fraction_bits;
  const uint32_t fraction = size % one;
  const double digits = exponent == 0 ? fraction : one + fraction;
  const double value = std::ldexp(
      digits, std::max(exponent, 1) - format.bias - format.fraction_bits);
  return pattern & 0x8000 ? -value : value;
}

// Of every pattern, its value and the numbers that are rounded to its size:
// from `least` to `most`, including these two if its last bit is 0. f32 holds
// all of them exactly.
class Patterns {
 public:
  explicit Patterns(const Format& format)
      : format_(format),
        values_(kPatterns),
        least_(kPatterns / 2),
        most_(kPatterns / 2) {
    for (uint32_t p = 0; p < kPatterns; ++p) {
      values_[p] = static_cast<float>(ValueOf(format, p));
      if (Format::Size(p) == format.Infinity()) values_[p] *= kInf;
      if (format.IsNan(p)) values_[p] = std::numeric_limits<float>::quiet_NaN();
    }
    for (uint32_t p = 0; p <= format.Infinity(); ++p) {
      least_[p] = p == 0 ? -kInf : Middle(p - 1);
      most_[p] = p == format.Infinity() ? kInf : Middle(p);
    }
  }

  float Value(uint32_t pattern) const { return values_[pattern]; }

  // Whether `result` is the pattern nearest to `exact`; any NaN for a NaN.
  bool IsNearest(uint32_t result, float exact) const {
    if (std::isnan(exact)) return format_.IsNan(result);
    if (format_.IsNan(result)) return false;
    if (std::signbit(exact) != (result >> 15 == 1)) return false;
    const float size = std::fabs(exact);
    const float least = least_[Format::Size(result)];
    const float most = most_[Format::Size(result)];
    return result % 2 == 0 ? least <= size && size <= most
                           : least < size && size < most;
  }

 private:
  static constexpr float kInf = std::numeric_limits<float>::infinity();

  // Between the pattern and the next.
  float Middle(uint32_t pattern) const {
    return static_cast<float>(
        (ValueOf(format_, pattern) + ValueOf(format_, pattern + 1)) / 2);
  }

  Format format_;
  std::vector<float> values_;
  std::vector<float> least_, most_;  // of a pattern without its sign
};

// In rank order; a + b and a * b are rounded to f32, which the 16-bit types
// are folded in, and of equal numbers (the zeros) the second stays.
float Reduced(ReduceOp op, float a, float b) {
  switch (op) {
    case ReduceOp::kSum:
      return a + b;
    case ReduceOp::kAverage:
      return (a + b) / 2;
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      break;
  }
  if (std::isnan(a) || std::isnan(b)) return a + b;
  return (op == ReduceOp::kMin ? a < b : a > b) ? a : b;
}

// ThreadSanitizer looks at threads, and is slow.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kPartners = 40;
#else
constexpr int kPartners = 1000;
#endif

// What the pattern `i` meets in round `round`: first the same for all, then
// something of about its size, where ties are, and something of any size.
uint16_t Partner(const Format& format, int round, uint32_t i) {
  constexpr uint16_t kSame[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x3C00, 0x3F80,
                                0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x7F7F, 0x7F80,
                                0xFF80, 0x7FC0, 0x0400, 0x0080};
  constexpr auto kNumSame = static_cast<int>(std::size(kSame));
  if (round < kNumSame) return kSame[round];
  const uint32_t random =
      (i * 2654435761u + static_cast<uint32_t>(round) * 40503u) * 2246822519u;
  if (round % 2 == 0) return static_cast<uint16_t>(random >> 16);
  const auto binades = static_cast<int>(random >> 16) % 25 - 12;
  const uint32_t fraction = random >> 8 & ((1u << format.fraction_bits) - 1);
  return static_cast<uint16_t>(
      i + static_cast<uint32_t>(binades << format.fraction_bits) + fraction);
}

struct Round {
  std::array<std::vector<uint16_t>, 2> inputs;
  std::array<std::vector<uint16_t>, 2> results;  // of each rank
};

// Every other round has the pattern and its partner on the other rank.
void Fill(const Format& format, int round, int rank,
          std::vector<uint16_t>& input) {
  const bool is_pattern = (round + rank) % 2 == 0;
  for (uint32_t i = 0; i < kPatterns; ++i) {
    input[i] =
        is_pattern ? static_cast<uint16_t>(i) : Partner(format, round, i);
  }
}

// Of one half of the patterns; how many are wrong.
int NumWrong(const Patterns& patterns, ReduceOp op, const Round& round,
             size_t half) {
  int num_wrong = 0;
  const size_t begin = half * kPatterns / 2;
  for (size_t i = begin; i < begin + kPatterns / 2; ++i) {
    const float exact = Reduced(op, patterns.Value(round.inputs[0][i]),
                                patterns.Value(round.inputs[1][i]));
    num_wrong += patterns.IsNearest(round.results[0][i], exact) ? 0 : 1;
  }
  return num_wrong;
}

class SixteenBitTest
    : public testing::TestWithParam<std::tuple<ReduceOp, DType>> {};

TEST_P(SixteenBitTest, EveryPatternWithEveryPartnerIsRoundedOnceToNearestEven) {
  const auto [op, dtype] = GetParam();
  const Format format = dtype == DType::kF16 ? kF16Format : kBF16Format;
  const Patterns patterns(format);
  Round round;
  for (auto& values : round.inputs) values.resize(kPatterns);
  RunRanksHere({.ranks = 2}, [&, op = op](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    for (int i = 0; i < kPartners; ++i) {
      Fill(format, i, comm.rank(), round.inputs[rank]);
      round.results[rank] = round.inputs[rank];
      comm.AllReduce(
          {round.results[rank].data(), format.dtype, int64_t{kPatterns}}, op,
          "x");
      comm.Barrier("both have all results");
      ASSERT_EQ(NumWrong(patterns, op, round, rank), 0) << "partners " << i;
      ASSERT_TRUE(round.results[0] == round.results[1]);
      comm.Barrier("both have looked");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Every, SixteenBitTest,
    testing::Combine(testing::Values(ReduceOp::kSum, ReduceOp::kAverage,
                                     ReduceOp::kProduct, ReduceOp::kMin,
                                     ReduceOp::kMax),
                     testing::Values(DType::kF16, DType::kBF16)),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_" +
             std::string(Name(std::get<1>(info.param)));
    });

}  // namespace
}  // namespace collectives
