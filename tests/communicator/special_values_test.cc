// NaN, infinities and zeros on any ranks, in every placement: what IEEE 754
// says of them, by its rules and not by computing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/collectives/values.h"
#include "tests/communicator/results.h"

namespace collectives {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
// Products and sums of a few of these are exact in every dtype.
constexpr std::array<float, 8> kValues = {kNan, -kNan, kInf, -kInf,
                                          0.0F, -0.0F, 1.0F, -2.0F};

// All ways to give `ranks` ranks one of kValues each; those of rank `rank`.
// Rounded up with the first ones, so that vector bodies and tails see all.
std::vector<float> Placements(int rank, int ranks) {
  size_t num = 1;
  size_t step = 1;  // as a number with one digit for each rank
  for (int r = 0; r < ranks; ++r) num *= kValues.size();
  for (int r = 0; r < rank; ++r) step *= kValues.size();
  std::vector<float> result(num + 5);
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = kValues[i % num / step % kValues.size()];
  }
  return result;
}

// The values that the ranks have for one element, in rank order.
using Column = std::vector<float>;

bool Has(const Column& column, float value) {  // -0 is 0
  return std::find(column.begin(), column.end(), value) != column.end();
}

float SignOfProduct(const Column& column) {
  float sign = 1;
  for (float v : column) sign = std::signbit(v) ? -sign : sign;
  return sign;
}

float SumByRules(const Column& column) {
  if (Has(column, kInf)) return Has(column, -kInf) ? kNan : kInf;
  if (Has(column, -kInf)) return -kInf;
  float sum = column[0];
  for (size_t r = 1; r < column.size(); ++r) sum += column[r];
  return sum;
}

float ProductByRules(const Column& column) {
  const bool has_infinity = Has(column, kInf) || Has(column, -kInf);
  if (has_infinity && Has(column, 0)) return kNan;
  float size = has_infinity ? kInf : 1;
  for (float v : column) size *= std::fabs(v);
  return SignOfProduct(column) * size;
}

float ByRules(ReduceOp op, const Column& column) {
  for (float v : column) {
    if (std::isnan(v)) return kNan;
  }
  switch (op) {
    case ReduceOp::kSum:
      return SumByRules(column);
    case ReduceOp::kAverage:
      return SumByRules(column) / static_cast<float>(column.size());
    case ReduceOp::kProduct:
      return ProductByRules(column);
    case ReduceOp::kMin:
      return *std::min_element(column.begin(), column.end());
    case ReduceOp::kMax:
      break;
  }
  return *std::max_element(column.begin(), column.end());
}

// Rounded to `dtype`.
std::vector<float> Expected(DType dtype, ReduceOp op, int ranks) {
  std::vector<std::vector<float>> of_rank;
  for (int r = 0; r < ranks; ++r) of_rank.push_back(Placements(r, ranks));
  std::vector<float> result(of_rank[0].size());
  for (size_t i = 0; i < result.size(); ++i) {
    Column column;
    for (const auto& values : of_rank) column.push_back(values[i]);
    result[i] = ByRules(op, column);
  }
  return dtype == DType::kF64 ? result : Floats(dtype, Cast(dtype, result));
}

bool IsSame(ReduceOp op, float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  // Which zero is the smaller one is not defined.
  const bool any_zero = op == ReduceOp::kMin || op == ReduceOp::kMax;
  return a == b && (any_zero || std::signbit(a) == std::signbit(b));
}

void ExpectRules(DType dtype, ReduceOp op, int ranks, const Bytes& result) {
  const std::vector<float> expected = Expected(dtype, op, ranks);
  const std::vector<float> values = Floats(dtype, result);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(IsSame(op, values[i], expected[i]))
        << Name(op) << " " << Name(dtype) << ", placement " << i << ": "
        << values[i] << ", expected " << expected[i];
  }
}

class SpecialValuesTest : public testing::TestWithParam<int> {};

TEST_P(SpecialValuesTest, FollowTheRulesInEveryPlacementOnEveryRankAlike) {
  const int ranks = GetParam();
  std::vector<Bytes> results(static_cast<size_t>(ranks));
  RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
    const std::vector<float> mine = Placements(comm.rank(), ranks);
    std::vector<int64_t> counts(static_cast<size_t>(ranks), 7);
    counts.back() += static_cast<int64_t>(mine.size()) - SumOf(counts);
    for (DType dtype : kFloats) {
      const Bytes values = Cast(dtype, mine);
      for (ReduceOp op : kReduceOps) {
        Bytes& result = results[static_cast<size_t>(comm.rank())];
        result = AllReduced(comm, dtype, op, values);
        comm.Barrier("all have theirs");
        ExpectRules(dtype, op, ranks, result);
        EXPECT_TRUE(result == results[0]) << "NaN of other bits";
        const Bytes part = ReduceScattered(comm, dtype, op, values, counts);
        ExpectRules(dtype, op, ranks, AllGathered(comm, dtype, part, counts));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SpecialValuesTest, testing::Values(2, 3, 4),
                         testing::PrintToStringParamName());

// One element: it rides along with the matching where a backend does that.
TEST(SpecialValueTest, FollowsTheRulesAloneToo) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    const std::vector<float> mine = Placements(comm.rank(), 2);
    for (DType dtype : kFloats) {
      for (ReduceOp op : kReduceOps) {
        Bytes all;
        for (float value : mine) {
          const Bytes one = AllReduced(comm, dtype, op, Cast(dtype, {value}));
          all.insert(all.end(), one.begin(), one.end());
        }
        ExpectRules(dtype, op, 2, all);
      }
    }
  });
}

TEST(MinMaxTest, WithoutNanTheOthersCompareAndZerosAndInfinitiesCount) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    const std::vector<std::vector<float>> of_rank = {
        {-1, kInf, 0, -2}, {5, 3, 0, -kInf}, {2, -7, -1, 8}};
    for (DType dtype : kFloats) {
      const Bytes values =
          Cast(dtype, of_rank[static_cast<size_t>(comm.rank())]);
      EXPECT_EQ(Floats(dtype, AllReduced(comm, dtype, ReduceOp::kMin, values)),
                (std::vector<float>{-1, -7, -1, -kInf}));
      EXPECT_EQ(Floats(dtype, AllReduced(comm, dtype, ReduceOp::kMax, values)),
                (std::vector<float>{5, kInf, 0, 8}));
    }
  });
}

}  // namespace
}  // namespace collectives
