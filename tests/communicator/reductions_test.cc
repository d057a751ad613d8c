// Reductions that are known to go wrong: averages, 16-bit sums on the way, one
// reduction taken for another, numbers of ranks that are no power of two.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/collectives/values.h"
#include "tests/communicator/results.h"

namespace collectives {
namespace {

TEST(ReductionTest, EachIsTheOneThatItsNameSays) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    const float mine = comm.rank() == 0 ? 2 : 3;
    for (DType dtype : kFloats) {
      const auto reduced = [&](ReduceOp op) {
        return Floats(dtype, AllReduced(comm, dtype, op, Cast(dtype, {mine})));
      };
      EXPECT_EQ(reduced(ReduceOp::kSum), std::vector<float>{5});
      EXPECT_EQ(reduced(ReduceOp::kProduct), std::vector<float>{6});
      EXPECT_EQ(reduced(ReduceOp::kMin), std::vector<float>{2});
      EXPECT_EQ(reduced(ReduceOp::kMax), std::vector<float>{3});
      EXPECT_EQ(reduced(ReduceOp::kAverage), std::vector<float>{2.5});
    }
    for (DType dtype : kIntegers) {
      const auto reduced = [&](ReduceOp op) {
        return AllReduced(comm, dtype, op, Cast(dtype, {mine}));
      };
      EXPECT_EQ(reduced(ReduceOp::kSum), Cast(dtype, {5}));
      EXPECT_EQ(reduced(ReduceOp::kProduct), Cast(dtype, {6}));
      EXPECT_EQ(reduced(ReduceOp::kMin), Cast(dtype, {2}));
      EXPECT_EQ(reduced(ReduceOp::kMax), Cast(dtype, {3}));
    }
  });
}

TEST(AverageTest, AReduceScatterDividesToo) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    const std::vector<std::vector<float>> of_rank = {{2, 4, 6, 8},
                                                     {4, 8, 2, 0}};
    for (DType dtype : kFloats) {
      const Bytes values =
          Cast(dtype, of_rank[static_cast<size_t>(comm.rank())]);
      const Bytes part =
          ReduceScattered(comm, dtype, ReduceOp::kAverage, values, {2, 2});
      EXPECT_EQ(Floats(dtype, part), comm.rank() == 0
                                         ? (std::vector<float>{3, 6})
                                         : (std::vector<float>{4, 4}));
    }
  });
}

TEST(AverageTest, IsOverRanksWhateverTheNumberOfElements) {
  RunRanksHere({.ranks = 4}, [](Communicator& comm) {
    for (size_t elems : {1, 3, 5, 1000}) {
      const std::vector<float> mine(elems, 4.0F * comm.rank());
      const Bytes result =
          AllReduced(comm, DType::kF32, ReduceOp::kAverage, BytesOf(mine));
      EXPECT_EQ(result, BytesOf(std::vector<float>(elems, 6)));
    }
  });
}

// Dividing before the sum would give 0, dividing after a 16-bit sum infinity.
TEST(AverageTest, SixteenBitFloatsNeitherOverflowNorVanishOnTheWay) {
  RunRanksHere({.ranks = 8}, [](Communicator& comm) {
    for (size_t elems : {size_t{1}, size_t{5000}}) {
      for (float value : {30000.0F, 0x1p-22F}) {
        const Bytes mine = Cast(DType::kF16, std::vector<float>(elems, value));
        EXPECT_EQ(AllReduced(comm, DType::kF16, ReduceOp::kAverage, mine), mine)
            << value;
      }
    }
    const Bytes large = Cast(DType::kF16, {30000});
    const Bytes sum = AllReduced(comm, DType::kF16, ReduceOp::kSum, large);
    EXPECT_TRUE(std::isinf(Floats(DType::kF16, sum)[0]));
  });
}

TEST(AverageTest, IsTheSumDividedOnceAndNotASumOfQuotients) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    const Bytes mine = RandomValues(DType::kF32, 1000, comm.rank());
    auto sum =
        ValuesOf<float>(AllReduced(comm, DType::kF32, ReduceOp::kSum, mine));
    for (float& v : sum) v /= 3;
    auto quotients = ValuesOf<float>(mine);
    for (float& v : quotients) v /= 3;
    const Bytes average =
        AllReduced(comm, DType::kF32, ReduceOp::kAverage, mine);
    EXPECT_EQ(average, BytesOf(sum));
    EXPECT_NE(average, AllReduced(comm, DType::kF32, ReduceOp::kSum,
                                  BytesOf(quotients)));
  });
}

class RanksTest : public testing::TestWithParam<int> {};

TEST_P(RanksTest, TheSumOfTheirNumbersIsRight) {
  const int ranks = GetParam();
  RunRanksHere({.ranks = ranks}, [ranks](Communicator& comm) {
    for (size_t elems : {1, 500}) {
      std::vector<int32_t> x(elems, comm.rank() + 1);
      comm.AllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, "x");
      EXPECT_EQ(x, std::vector<int32_t>(elems, ranks * (ranks + 1) / 2));
    }
  });
}

TEST_P(RanksTest, AnAllReduceIsTheAllGatherOfAReduceScatter) {
  const int ranks = GetParam();
  RunRanksHere({.ranks = ranks}, [ranks](Communicator& comm) {
    for (DType dtype : kFloats) {
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
        for (int64_t most : {4, 300}) {
          std::vector<int64_t> counts;
          for (int r = 0; r < ranks; ++r) counts.push_back(r * 31 % most);
          const Bytes mine = RandomValues(dtype, SumOf(counts), comm.rank());
          const Bytes part = ReduceScattered(comm, dtype, op, mine, counts);
          EXPECT_EQ(AllReduced(comm, dtype, op, mine),
                    AllGathered(comm, dtype, part, counts))
              << Name(dtype) << " " << Name(op);
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Numbers, RanksTest,
                         testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 12),
                         [](const auto& info) {
                           return "ranks" + std::to_string(info.param);
                         });

TEST(LoneRankTest, GetsItsInputBackFromEveryCallAndEachIsRecorded) {
  const auto recorders = RunRanksHere({.ranks = 1}, [](Communicator& comm) {
    const Bytes mine = RandomValues(DType::kF32, 100, 1);
    Bytes result = mine;
    const Buffer in_place{result.data(), DType::kF32, 100};
    Bytes other(mine.size());
    const Buffer apart{other.data(), DType::kF32, 100};
    for (ReduceOp op : kReduceOps) {
      EXPECT_EQ(AllReduced(comm, DType::kF32, op, mine), mine);
      EXPECT_EQ(ReduceScattered(comm, DType::kF32, op, mine, {100}), mine);
      comm.StartAllReduce(in_place, op, "async").Wait();
      comm.StartReduceScatter(in_place, apart, {100}, op, "async").Wait();
      EXPECT_EQ(result, mine);
      EXPECT_EQ(other, mine);
      other.assign(other.size(), std::byte{0});
    }
    EXPECT_EQ(AllGathered(comm, DType::kF32, mine, {100}), mine);
    comm.StartAllGather(in_place, apart, {100}, "async").Wait();
    EXPECT_EQ(other, mine);
    comm.Broadcast(in_place, 0, "x");
    comm.StartBroadcast(in_place, 0, "async").Wait();
    EXPECT_EQ(result, mine);
  });
  const auto records = recorders.at(0).Records();
  ASSERT_EQ(records.size(), 24U);
  for (const Record& r : records) {
    EXPECT_EQ(r.state, RecordState::kDone);
    EXPECT_EQ(r.bytes, 400);
    EXPECT_EQ(r.sent_bytes, 0);
  }
}

}  // namespace
}  // namespace collectives
