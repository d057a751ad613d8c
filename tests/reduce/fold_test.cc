#include "collectives/reduce/fold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/collectives/oracle.h"

namespace collectives {
namespace {

constexpr DType kDTypes[] = {DType::kF64, DType::kF32, DType::kBF16,
                             DType::kF16, DType::kI64, DType::kI32,
                             DType::kU8};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage,
                             ReduceOp::kProduct, ReduceOp::kMin,
                             ReduceOp::kMax};

std::vector<const void*> Pointers(const std::vector<Bytes>& values) {
  std::vector<const void*> pointers;
  for (const Bytes& v : values) pointers.push_back(v.data());
  return pointers;
}

// Folds 16-bit or wider single values, one a rank.
template <typename T>
T FoldOne(DType dtype, ReduceOp op, const std::vector<T>& values) {
  std::vector<const void*> sources;
  for (const T& v : values) sources.push_back(&v);
  T result{};
  void* destination = &result;
  Fold(dtype, op, sources, std::span(&destination, 1), {0, 0, 1});
  return result;
}

class FoldTest : public testing::TestWithParam<DType> {};

TEST_P(FoldTest, GivesTheBitsOfASerialFoldInRankOrder) {
  const DType dtype = GetParam();
  for (ReduceOp op : kOps) {
    if (op == ReduceOp::kAverage && IsInteger(dtype)) continue;
    for (int ranks : {1, 2, 3, 8, 17}) {
      for (int64_t elems : {0, 1, 7, 127, 128, 129, 1001}) {
        std::vector<Bytes> values;
        for (int r = 0; r < ranks; ++r) {
          values.push_back(RandomValues(dtype, elems, 100 * r + elems));
        }
        PoisonedBuffer result(dtype, elems);
        void* destination = result.data();
        Fold(dtype, op, Pointers(values), std::span(&destination, 1),
             {0, 0, elems});
        EXPECT_TRUE(result.Holds(SerialFold(dtype, op, values)))
            << Name(op) << " ranks " << ranks << " elems " << elems;
        EXPECT_TRUE(result.IsPoisonIntact());
      }
    }
  }
}

TEST_P(FoldTest, GivesTheSameBitsHoweverTheRangeIsCut) {
  const DType dtype = GetParam();
  const int64_t elems = 1001;
  const std::vector<Bytes> values = {RandomValues(dtype, elems, 1),
                                     RandomValues(dtype, elems, 2),
                                     RandomValues(dtype, elems, 3)};
  const Bytes whole = SerialFold(dtype, ReduceOp::kSum, values);
  for (int64_t cut : {1, 63, 128, 500}) {
    PoisonedBuffer result(dtype, elems);
    void* destination = result.data();
    for (int64_t begin = 0; begin < elems; begin += cut) {
      Fold(dtype, ReduceOp::kSum, Pointers(values), std::span(&destination, 1),
           {begin, begin, std::min(cut, elems - begin)});
    }
    EXPECT_TRUE(result.Holds(whole)) << "cut " << cut;
  }
}

TEST_P(FoldTest, WritesEveryDestinationEvenWhereItIsASource) {
  const DType dtype = GetParam();
  const std::vector<Bytes> values = {RandomValues(dtype, 300, 1),
                                     RandomValues(dtype, 300, 2),
                                     RandomValues(dtype, 300, 3)};
  std::vector<PoisonedBuffer> buffers;
  for (const Bytes& v : values) buffers.emplace_back(dtype, v);
  std::vector<const void*> sources;
  std::vector<void*> destinations;
  for (PoisonedBuffer& b : buffers) sources.push_back(b.data());
  for (PoisonedBuffer& b : buffers) destinations.push_back(b.data());
  Fold(dtype, ReduceOp::kSum, sources, destinations, {0, 0, 300});
  for (const PoisonedBuffer& b : buffers) {
    EXPECT_TRUE(b.Holds(SerialFold(dtype, ReduceOp::kSum, values)));
    EXPECT_TRUE(b.IsPoisonIntact());
  }
}

TEST_P(FoldTest, ReadsAndWritesAtTheirOwnOffsets) {
  const DType dtype = GetParam();
  const std::vector<Bytes> values = {RandomValues(dtype, 200, 1),
                                     RandomValues(dtype, 200, 2)};
  PoisonedBuffer result(dtype, 130);
  void* destination =
      static_cast<std::byte*>(result.data()) - 5 * SizeOf(dtype);
  Fold(dtype, ReduceOp::kSum, Pointers(values), std::span(&destination, 1),
       {70, 5, 130});
  EXPECT_TRUE(result.Holds(
      Slice(SerialFold(dtype, ReduceOp::kSum, values), dtype, 70, 130)));
  EXPECT_TRUE(result.IsPoisonIntact());
}

INSTANTIATE_TEST_SUITE_P(DTypes, FoldTest, testing::ValuesIn(kDTypes),
                         [](const auto& info) {
                           return std::string(Name(info.param));
                         });

// Else the tests above could not tell one order from another. (f32 holds the
// sum of a few 16-bit floats almost exactly: their order is lost in the last
// rounding.)
TEST(FoldOracleTest, TheOrderOfTheRanksShowsInTheBits) {
  for (DType dtype : {DType::kF64, DType::kF32}) {
    std::vector<Bytes> values;
    for (int r = 0; r < 4; ++r) values.push_back(RandomValues(dtype, 1001, r));
    const Bytes forward = SerialFold(dtype, ReduceOp::kSum, values);
    std::reverse(values.begin(), values.end());
    EXPECT_NE(SerialFold(dtype, ReduceOp::kSum, values), forward);
  }
}

TEST(FoldNanTest, MinAndMaxKeepNanWhicheverRankHasIt) {
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    std::vector<double> placement = {1, 2, 3, 4};  // 2 stands for NaN
    do {
      std::vector<double> f64 = placement;
      std::replace(f64.begin(), f64.end(), 2.0, std::nan(""));
      const std::vector<float> f32(f64.begin(), f64.end());
      std::vector<uint16_t> f16;
      std::vector<uint16_t> bf16;
      for (float v : f32) f16.push_back(ToF16(v));
      for (float v : f32) bf16.push_back(ToBF16(v));
      EXPECT_TRUE(std::isnan(FoldOne(DType::kF64, op, f64)));
      EXPECT_TRUE(std::isnan(FoldOne(DType::kF32, op, f32)));
      EXPECT_TRUE(std::isnan(FromF16(FoldOne(DType::kF16, op, f16))));
      EXPECT_TRUE(std::isnan(FromBF16(FoldOne(DType::kBF16, op, bf16))));
    } while (std::next_permutation(placement.begin(), placement.end()));
  }
}

TEST(FoldNanTest, MinAndMaxKeepNanAnywhereInAnArray) {
  for (int64_t at = 0; at < 40; ++at) {  // vector bodies and tails
    std::vector<float> a(40, 1.0F);
    std::vector<float> b(40, 2.0F);
    a[static_cast<size_t>(at)] = std::nanf("");
    for (int swap = 0; swap < 2; ++swap) {
      const std::vector<const void*> sources = {a.data(), b.data()};
      std::vector<float> result(40);
      void* destination = result.data();
      Fold(DType::kF32, ReduceOp::kMax, sources, std::span(&destination, 1),
           {0, 0, 40});
      for (int64_t i = 0; i < 40; ++i) {
        EXPECT_EQ(std::isnan(result[static_cast<size_t>(i)]), i == at);
      }
      std::swap(a, b);
    }
  }
}

TEST(FoldAverageTest, SixteenBitSumsDoNotOverflowOnTheWay) {
  const std::vector<uint16_t> large(8, ToF16(30000));
  EXPECT_EQ(FromF16(FoldOne(DType::kF16, ReduceOp::kAverage, large)), 30000);
  EXPECT_TRUE(std::isinf(FromF16(FoldOne(DType::kF16, ReduceOp::kSum, large))));
  const std::vector<uint16_t> tiny(8, ToF16(0x1p-22F));
  EXPECT_EQ(FromF16(FoldOne(DType::kF16, ReduceOp::kAverage, tiny)), 0x1p-22F);
}

// Every 16-bit pattern against partners of all magnitudes: one rounding, to
// nearest even.
TEST(FoldSixteenBitTest, EverySumIsRoundedOnceToNearestEven) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    for (uint32_t partner = 0; partner < 65536; partner += 1021) {
      const std::vector<uint16_t> other(all.size(),
                                        static_cast<uint16_t>(partner));
      const std::vector<const void*> sources = {all.data(), other.data()};
      std::vector<uint16_t> result(all.size());
      void* destination = result.data();
      Fold(dtype, ReduceOp::kSum, sources, std::span(&destination, 1),
           {0, 0, 65536});
      const bool is_f16 = dtype == DType::kF16;
      const auto value = is_f16 ? FromF16 : FromBF16;
      for (size_t i = 0; i < all.size(); ++i) {
        const float sum = value(all[i]) + value(other[i]);
        if (std::isnan(sum)) {
          ASSERT_TRUE(std::isnan(value(result[i]))) << i << " + " << partner;
        } else {
          ASSERT_EQ(result[i], is_f16 ? ToF16(sum) : ToBF16(sum))
              << i << " + " << partner;
        }
      }
    }
  }
}

TEST(FoldIntegerTest, OverflowWrapsAround) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(FoldOne<int64_t>(DType::kI64, ReduceOp::kSum, {most, 1}), least);
  EXPECT_EQ(FoldOne<int64_t>(DType::kI64, ReduceOp::kMin, {most, -1}), -1);
  EXPECT_EQ(FoldOne<int32_t>(DType::kI32, ReduceOp::kProduct, {1 << 30, 4}), 0);
  EXPECT_EQ(FoldOne<uint8_t>(DType::kU8, ReduceOp::kSum, {200, 100}), 44);
  EXPECT_EQ(FoldOne<uint8_t>(DType::kU8, ReduceOp::kMax, {200, 100}), 200);
}

}  // namespace
}  // namespace collectives
