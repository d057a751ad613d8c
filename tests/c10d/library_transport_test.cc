// Data moved by the library's own collectives, after the same matching.
#include "collectives/c10d/library_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "collectives/c10d/process_runner.h"
#include "collectives/errors.h"
#include "tests/collectives/oracle.h"

namespace collectives {
namespace {

using ::testing::Each;

C10dOptions OverGloo() {
  C10dOptions options;
  options.library = Library::kGloo;
  return options;
}

// Small integers: exact in every order.
Bytes Integers(DType dtype, int64_t elems, int rank) {
  std::vector<float> values;
  for (int64_t i = 0; i < elems; ++i) {
    values.push_back(static_cast<float>((i + rank) % 5 + 1));
  }
  Bytes bytes(static_cast<size_t>(elems * SizeOf(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits =
        dtype == DType::kBF16 ? ToBF16(values[i]) : ToF16(values[i]);
    const void* from = dtype == DType::kF32
                           ? static_cast<const void*>(&values[i])
                           : static_cast<const void*>(&bits);
    std::memcpy(&bytes[i * static_cast<size_t>(SizeOf(dtype))], from,
                static_cast<size_t>(SizeOf(dtype)));
  }
  return bytes;
}

TEST(LibraryTest, TheOneOfThisLibtorchIsGloo) {
  EXPECT_TRUE(HasLibrary(Library::kNone));
  EXPECT_TRUE(HasLibrary(Library::kGloo));
}

class LibraryAllReduceTest : public testing::TestWithParam<DType> {};

TEST_P(LibraryAllReduceTest, GivesWhatOursGivesWhereTheArithmeticIsExact) {
  constexpr int kRanks = 4;  // a power of two: the average is exact too
  const DType dtype = GetParam();
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct,
                      ReduceOp::kMin, ReduceOp::kMax}) {
    for (int64_t elems : {int64_t{0}, int64_t{1}, int64_t{4099}}) {
      std::vector<Bytes> inputs;
      for (int r = 0; r < kRanks; ++r) {
        inputs.push_back(Integers(dtype, elems, r));
      }
      const Bytes folded = SerialFold(dtype, op, inputs);
      GlooThreadRunner(OverGloo()).Run({.ranks = kRanks}, [&](Communicator& c) {
        PoisonedBuffer x(dtype, inputs[static_cast<size_t>(c.rank())]);
        c.AllReduce({x.data(), dtype, elems}, op, "x");
        EXPECT_TRUE(x.Holds(folded) && x.IsPoisonIntact())
            << Name(op) << " " << Name(dtype) << " x " << elems;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, LibraryAllReduceTest,
                         testing::Values(DType::kF32, DType::kF16,
                                         DType::kBF16),
                         [](const auto& info) {
                           return std::string(Name(info.param));
                         });

TEST(LibraryTest, ChannelsNeedNoCommonOrderThere) {
  GlooThreadRunner(OverGloo()).Run({.ranks = 3}, [](Communicator& comm) {
    const auto second = comm.Duplicate("second");
    for (int i = 0; i < 10; ++i) {
      std::vector<float> x(5000, 1), y(5000, 2);
      const auto start = [](Communicator& on, std::vector<float>& data) {
        return on.StartAllReduce(AsBuffer(std::span(data)), ReduceOp::kSum,
                                 "x");
      };
      std::vector<Work> works;
      if ((comm.rank() + i) % 2 == 0) {
        works.push_back(start(comm, x));
        works.push_back(start(*second, y));
      } else {
        works.push_back(start(*second, y));
        works.push_back(start(comm, x));
      }
      for (Work& work : works) work.Wait();
      EXPECT_THAT(x, Each(3));
      EXPECT_THAT(y, Each(6));
    }
  });
}

TEST(LibraryTest, AMismatchIsStillAnErrorOnEveryRank) {
  GlooThreadRunner(OverGloo()).Run({.ranks = 2}, [](Communicator& comm) {
    std::vector<float> x(5000, 1);
    const auto elems = static_cast<size_t>(5000 - comm.rank());
    EXPECT_THROW(comm.AllReduce(AsBuffer(std::span(x).first(elems)),
                                ReduceOp::kSum, "x"),
                 MismatchError);
    EXPECT_THAT(x, Each(1));
  });
}

}  // namespace
}  // namespace collectives
