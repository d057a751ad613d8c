// The same bits whatever may change otherwise: how many elements there are, how
// they are cut, where they lie, what ran before, which run it is.
#include <gtest/gtest.h>

#include <vector>

#include "tests/backend/backend.h"
#include "tests/collectives/values.h"
#include "tests/communicator/results.h"

namespace collectives {
namespace {

// A few bytes ride along with the matching, others go in one piece or several,
// or are cut into chunks; the result is the same.
TEST(SizesTest, EachElementsBitsDoNotDependOnHowManyThereAre) {
  constexpr int64_t kMost = 1'310'731;  // 5 MiB of f32: some pieces for each
  for (ReduceOp op : kReduceOps) {
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

// With another group made and ended before each, and another channel.
TEST(SameBitsTest, WhereverTheDataLiesAndWhateverElseHasRun) {
  constexpr int64_t kElems = 2001;
  const std::vector<Bytes> inputs = {RandomValues(DType::kF32, kElems, 1),
                                     RandomValues(DType::kF32, kElems, 2),
                                     RandomValues(DType::kF32, kElems, 3)};
  const Bytes folded = SerialFold(DType::kF32, ReduceOp::kAverage, inputs);
  for (int run = 0; run < 5; ++run) {
    RunRanksHere({.ranks = 2 + run % 3},
                 [](Communicator& comm) { comm.Barrier("another group"); });
    RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
      const Bytes& mine = inputs[static_cast<size_t>(comm.rank())];
      for (int i = 0; i < 10; ++i) {
        const auto other = comm.Duplicate("other");
        PoisonedBuffer data(DType::kF32, mine, (10 * run + i) * comm.rank());
        other->AllReduce({data.data(), DType::kF32, kElems}, ReduceOp::kAverage,
                         "x");
        EXPECT_TRUE(data.Holds(folded)) << "run " << run << ", " << i;
      }
    });
  }
}

TEST(SameBitsTest, OfLargeBuffersInEveryRun) {
  constexpr int64_t kElems = 50'001;
  Bytes first;
  for (int run = 0; run < 20; ++run) {
    Bytes result;
    RunRanksHere({.ranks = 4}, [&](Communicator& comm) {
      const Bytes mine =
          AllReduced(comm, DType::kF32, ReduceOp::kAverage,
                     RandomValues(DType::kF32, kElems,
                                  static_cast<uint64_t>(comm.rank())));
      if (comm.rank() == run % 4) result = mine;
    });
    if (run == 0) first = result;
    EXPECT_TRUE(result == first) << "run " << run;
  }
}

}  // namespace
}  // namespace collectives
