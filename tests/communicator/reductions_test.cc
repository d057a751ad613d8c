// Reductions of values that are known to go wrong: NaN, 16-bit rounding,
// averages, ranks that are no power of two; and every way in which a backend
// moves data, by its size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/collectives/oracle.h"

namespace collectives {
namespace {

constexpr DType kFloats[] = {DType::kF64, DType::kF32, DType::kBF16,
                             DType::kF16};
constexpr DType kIntegers[] = {DType::kI64, DType::kI32, DType::kU8};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage,
                             ReduceOp::kProduct, ReduceOp::kMin,
                             ReduceOp::kMax};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
Bytes BytesOf(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

template <typename T>
std::vector<T> ValuesOf(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Values that every dtype holds exactly.
Bytes Cast(DType dtype, const std::vector<float>& values) {
  const auto as = [&values](auto to) {
    std::vector<decltype(to(0.0F))> result;
    for (float v : values) result.push_back(to(v));
    return BytesOf(result);
  };
  switch (dtype) {
    case DType::kF64:
      return as([](float v) { return static_cast<double>(v); });
    case DType::kF32:
      return BytesOf(values);
    case DType::kBF16:
      return as(ToBF16);
    case DType::kF16:
      return as(ToF16);
    case DType::kI64:
      return as([](float v) { return static_cast<int64_t>(v); });
    case DType::kI32:
      return as([](float v) { return static_cast<int32_t>(v); });
    case DType::kU8:
      break;
  }
  return as([](float v) { return static_cast<uint8_t>(v); });
}

std::vector<float> Floats(DType dtype, const Bytes& bytes) {
  std::vector<float> result;
  if (dtype == DType::kF64) {
    for (double v : ValuesOf<double>(bytes)) {
      result.push_back(static_cast<float>(v));
    }
    return result;
  }
  if (dtype == DType::kF32) return ValuesOf<float>(bytes);
  for (uint16_t v : ValuesOf<uint16_t>(bytes)) {
    result.push_back(dtype == DType::kF16 ? FromF16(v) : FromBF16(v));
  }
  return result;
}

Bytes AllReduced(Communicator& comm, DType dtype, ReduceOp op, Bytes values) {
  const auto bytes = static_cast<int64_t>(values.size());
  comm.AllReduce({values.data(), dtype, bytes / SizeOf(dtype)}, op, "x");
  return values;
}

Bytes ReduceScattered(Communicator& comm, DType dtype, ReduceOp op,
                      const Bytes& values, const std::vector<int64_t>& counts) {
  const int64_t mine = counts[static_cast<size_t>(comm.rank())];
  Bytes part(static_cast<size_t>(mine * SizeOf(dtype)));
  const auto bytes = static_cast<int64_t>(values.size());
  comm.ReduceScatter({values.data(), dtype, bytes / SizeOf(dtype)},
                     {part.data(), dtype, mine}, counts, op, "x");
  return part;
}

Bytes AllGathered(Communicator& comm, DType dtype, const Bytes& part,
                  const std::vector<int64_t>& counts) {
  Bytes all(static_cast<size_t>(SumOf(counts) * SizeOf(dtype)));
  comm.AllGather({part.data(), dtype, counts[static_cast<size_t>(comm.rank())]},
                 {all.data(), dtype, SumOf(counts)}, counts, "x");
  return all;
}

// Rank by rank the orders of 1, NaN, 3, 4 over 4 ranks, one an element; `times`
// over.
std::vector<float> NanPlacements(int rank, int times) {
  std::vector<float> result;
  for (int i = 0; i < times; ++i) {
    std::vector<float> order = {1, 2, 3, 4};  // 2 stands for NaN
    do {
      const float value = order[static_cast<size_t>(rank)];
      result.push_back(value == 2 ? kNan : value);
    } while (std::next_permutation(order.begin(), order.end()));
  }
  return result;
}

TEST(MinMaxTest, NanReachesEveryRankWhicheverHasItByBothReductions) {
  RunRanksHere({.ranks = 4}, [](Communicator& comm) {
    for (DType dtype : kFloats) {
      for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
        for (int times : {1, 50}) {  // small messages and large
          const Bytes values = Cast(dtype, NanPlacements(comm.rank(), times));
          const std::vector<int64_t> counts(4, 6 * times);
          for (const Bytes& result :
               {AllReduced(comm, dtype, op, values),
                ReduceScattered(comm, dtype, op, values, counts)}) {
            for (float v : Floats(dtype, result)) {
              ASSERT_TRUE(std::isnan(v)) << Name(op) << " " << Name(dtype);
            }
          }
        }
      }
    }
  });
}

TEST(MinMaxTest, WithoutNanTheOthersCompareAndZerosAndInfinitiesCount) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
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

TEST(AverageTest, OfIntegersIsRefusedOnEveryRankAndChangesNothing) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    for (DType dtype : kIntegers) {
      Bytes values = Cast(dtype, {4, 6});
      const Bytes before = values;
      const Buffer buffer{values.data(), dtype, 2};
      Bytes part = Cast(dtype, {9});
      EXPECT_THROW(comm.AllReduce(buffer, ReduceOp::kAverage, "x"),
                   InvalidArgument);
      EXPECT_THROW(comm.ReduceScatter(buffer, {part.data(), dtype, 1}, {1, 1},
                                      ReduceOp::kAverage, "x"),
                   InvalidArgument);
      EXPECT_EQ(values, before);
      EXPECT_EQ(part, Cast(dtype, {9}));
    }
    EXPECT_TRUE(comm.recorder().Records().empty());
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

// What is to be added to the pattern `i` in round `round`: one number for all
// patterns, or another for each.
uint16_t Partner(int round, size_t i) {
  constexpr uint16_t kSpecial[] = {0x0000, 0x8000, 0x0001, 0x3C00, 0x7BFF,
                                   0x7C00, 0xFC00, 0x7E00, 0x7F80, 0x0400};
  constexpr int kSpecials = static_cast<int>(std::size(kSpecial));
  if (round < kSpecials) return kSpecial[round];
  return static_cast<uint16_t>(i * 40503 + static_cast<size_t>(round) * 7919);
}

TEST(SixteenBitTest, EverySumIsRoundedOnceToNearestEven) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      const auto value = dtype == DType::kF16 ? FromF16 : FromBF16;
      const auto bits = dtype == DType::kF16 ? ToF16 : ToBF16;
      for (int round = 0; round < 20; ++round) {
        std::vector<uint16_t> mine(65536);
        for (size_t i = 0; i < mine.size(); ++i) {
          mine[i] =
              comm.rank() == 0 ? static_cast<uint16_t>(i) : Partner(round, i);
        }
        const auto result = ValuesOf<uint16_t>(
            AllReduced(comm, dtype, ReduceOp::kSum, BytesOf(mine)));
        for (size_t i = 0; i < result.size(); ++i) {
          const float sum =
              value(static_cast<uint16_t>(i)) + value(Partner(round, i));
          const bool is_right = std::isnan(sum) ? std::isnan(value(result[i]))
                                                : result[i] == bits(sum);
          ASSERT_TRUE(is_right) << Name(dtype) << " " << i << " + "
                                << Partner(round, i) << ": " << result[i];
        }
      }
    }
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

TEST(LoneRankTest, GetsItsInputBackFromEveryReduction) {
  const auto recorders = RunRanksHere({.ranks = 1}, [](Communicator& comm) {
    for (ReduceOp op : kOps) {
      const Bytes mine = RandomValues(DType::kF32, 100, 1);
      EXPECT_EQ(AllReduced(comm, DType::kF32, op, mine), mine);
      EXPECT_EQ(ReduceScattered(comm, DType::kF32, op, mine, {100}), mine);
      Bytes async = mine;
      Work work =
          comm.StartAllReduce({async.data(), DType::kF32, 100}, op, "async");
      work.Wait();
      EXPECT_EQ(async, mine);
    }
    const Bytes mine = RandomValues(DType::kF32, 100, 2);
    EXPECT_EQ(AllGathered(comm, DType::kF32, mine, {100}), mine);
  });
  const auto records = recorders.at(0).Records();
  ASSERT_EQ(records.size(), 16U);
  for (const Record& r : records) {
    EXPECT_EQ(r.state, RecordState::kDone);
    EXPECT_EQ(r.bytes, 400);
    EXPECT_EQ(r.sent_bytes, 0);
  }
}

// A few bytes ride along with the matching, others go in one piece or several,
// or are cut into chunks; the result is the same.
TEST(SizesTest, EachElementsBitsDoNotDependOnHowManyThereAre) {
  constexpr int64_t kMost = 1'310'731;  // 5 MiB of f32: some pieces for each
  for (ReduceOp op : kOps) {
    const std::vector<Bytes> inputs = {RandomValues(DType::kF32, kMost, 1),
                                       RandomValues(DType::kF32, kMost, 2)};
    const Bytes folded = SerialFold(DType::kF32, op, inputs);
    RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
      const Bytes& mine = inputs[static_cast<size_t>(comm.rank())];
      for (int64_t elems : {int64_t{1}, int64_t{60}, int64_t{61}, int64_t{5000},
                            int64_t{300'000}, kMost}) {
        EXPECT_TRUE(AllReduced(comm, DType::kF32, op,
                               Slice(mine, DType::kF32, 0, elems)) ==
                    Slice(folded, DType::kF32, 0, elems))
            << Name(op) << " x " << elems;
      }
    });
  }
}

TEST(SizesTest, LargeUnevenPartsHaveTheBitsOfASerialFold) {
  const std::vector<int64_t> counts = {0, 700'001, 262'144};
  const int64_t elems = SumOf(counts);
  std::vector<Bytes> inputs;
  for (int r = 0; r < 3; ++r) {
    inputs.push_back(RandomValues(DType::kF32, elems, 10 + r));
  }
  const Bytes folded = SerialFold(DType::kF32, ReduceOp::kSum, inputs);
  RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    const int64_t offset = rank == 2 ? counts[1] : 0;
    const Bytes part = ReduceScattered(comm, DType::kF32, ReduceOp::kSum,
                                       inputs[rank], counts);
    EXPECT_TRUE(part == Slice(folded, DType::kF32, offset, counts[rank]));
    EXPECT_TRUE(AllGathered(comm, DType::kF32, part, counts) == folded);
    Bytes broadcast = inputs[rank];
    comm.Broadcast({broadcast.data(), DType::kF32, elems}, 1, "bc");
    EXPECT_TRUE(broadcast == inputs[1]);
  });
}

TEST(SameBitsTest, WhereverTheDataLiesAndWhateverElseHasRun) {
  constexpr int64_t kElems = 2001;
  const std::vector<Bytes> inputs = {RandomValues(DType::kF32, kElems, 1),
                                     RandomValues(DType::kF32, kElems, 2),
                                     RandomValues(DType::kF32, kElems, 3)};
  const Bytes folded = SerialFold(DType::kF32, ReduceOp::kAverage, inputs);
  for (int run = 0; run < 3; ++run) {
    RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
      const Bytes& mine = inputs[static_cast<size_t>(comm.rank())];
      for (int offset = 0; offset < 10; ++offset) {  // of another for each rank
        const auto other = comm.Duplicate("other");
        Bytes memory(static_cast<size_t>(4 * (offset * comm.rank())));
        memory.insert(memory.end(), mine.begin(), mine.end());
        std::byte* data = memory.data() + memory.size() - mine.size();
        other->AllReduce({data, DType::kF32, kElems}, ReduceOp::kAverage, "x");
        EXPECT_TRUE(Bytes(data, data + mine.size()) == folded);
      }
    });
    RunRanksHere({.ranks = 2 + run},
                 [](Communicator& comm) { comm.Barrier("another group"); });
  }
}

}  // namespace
}  // namespace collectives
