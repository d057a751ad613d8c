// Where the data lies: parts of a larger array, nothing at all, and sizes that
// do not fit the call.
#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/collectives/oracle.h"

namespace collectives {
namespace {

// An array of which only a part may change: [1000 r, 1000 r + 1, ...].
class Array {
 public:
  Array(int rank, size_t size) : now_(size) {
    std::iota(now_.begin(), now_.end(), 1000.0F * static_cast<float>(rank));
    before_ = now_;
  }

  std::span<float> Part(size_t begin, size_t size) {
    return std::span(now_).subspan(begin, size);
  }
  // Expects the part to be as `value(i)` says for its element i, and the rest
  // unchanged, which the part then becomes too.
  template <typename Value>
  void ExpectPart(size_t begin, size_t size, Value value, const char* what) {
    for (size_t i = 0; i < size; ++i) before_[begin + i] = value(i);
    EXPECT_EQ(now_, before_) << what;
  }

 private:
  std::vector<float> now_;
  std::vector<float> before_;
};

class PartOfAnArrayTest : public testing::TestWithParam<size_t> {};

// Parts of `size` elements lie at begin = size, between others.
TEST_P(PartOfAnArrayTest, IsAllThatAnyCollectiveReadsAndWrites) {
  const size_t size = GetParam();
  RunRanksHere({.ranks = 2}, [size](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    const auto elems = static_cast<int64_t>(size);
    const auto own = [=](size_t of, size_t i) {
      return 1000.0F * static_cast<float>(of) + static_cast<float>(i);
    };
    const std::vector<int64_t> counts = {elems, elems};
    Array reduced(comm.rank(), 3 * size);
    comm.AllReduce(AsBuffer(reduced.Part(size, size)), ReduceOp::kSum, "ar");
    reduced.ExpectPart(
        size, size,
        [&](size_t i) { return own(0, size + i) + own(1, size + i); },
        "all-reduce");

    Array sent(comm.rank(), 3 * size);
    comm.Broadcast(AsBuffer(sent.Part(size, size)), 1, "bc");
    sent.ExpectPart(
        size, size, [&](size_t i) { return own(1, size + i); }, "broadcast");

    Array scattered(comm.rank(), 7 * size);
    comm.ReduceScatter(AsBuffer(scattered.Part(size, 2 * size)),
                       AsBuffer(scattered.Part(5 * size, size)), counts,
                       ReduceOp::kMax, "rs");
    scattered.ExpectPart(
        5 * size, size,
        [&](size_t i) { return own(1, size + rank * size + i); },
        "reduce-scatter");

    Array gathered(comm.rank(), 7 * size);
    comm.AllGather(AsBuffer(gathered.Part(size, size)),
                   AsBuffer(gathered.Part(4 * size, 2 * size)), counts, "ag");
    gathered.ExpectPart(
        4 * size, 2 * size,
        [&](size_t i) { return own(i / size, size + i % size); }, "all-gather");
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, PartOfAnArrayTest,
                         testing::Values(4, 100, 300'000),
                         testing::PrintToStringParamName());

// What a sharded optimizer does: its shards are parts of one array.
TEST(ShardsTest, OfOneArrayAreReducedChangedAndGatheredInPlace) {
  const std::vector<int64_t> counts = {16, 0, 1000, 7};
  RunRanksHere({.ranks = 4}, [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    const auto offset = static_cast<size_t>(
        std::accumulate(counts.begin(), counts.begin() + comm.rank(), 0L));
    std::vector<float> flat(static_cast<size_t>(SumOf(counts)));
    const auto all = AsBuffer(std::span(flat));
    const auto shard =
        std::span(flat).subspan(offset, static_cast<size_t>(counts[rank]));
    std::vector<float> expected(flat.size());
    for (int step = 1; step <= 5; ++step) {
      for (size_t i = 0; i < flat.size(); ++i) {
        flat[i] = static_cast<float>(i % 64 + rank) * static_cast<float>(step);
        expected[i] =
            static_cast<float>(4 * (i % 64) + 6) * static_cast<float>(step) + 1;
      }
      comm.ReduceScatter(all, AsBuffer(shard), counts, ReduceOp::kSum, "rs");
      for (float& v : shard) v += 1;
      comm.AllGather(AsBuffer(shard), all, counts, "ag");
      ASSERT_EQ(flat, expected) << "step " << step;
    }
  });
}

class NothingTest : public testing::TestWithParam<int> {};

TEST_P(NothingTest, IsReducedScatteredGatheredAndBroadcastWithoutMemory) {
  const int ranks = GetParam();
  const auto recorders =
      RunRanksHere({.ranks = ranks}, [ranks](Communicator& comm) {
        const std::vector<int64_t> counts(static_cast<size_t>(ranks), 0);
        for (DType dtype : {DType::kF32, DType::kF16, DType::kI64}) {
          const Buffer none{nullptr, dtype, 0};
          comm.AllReduce(none, ReduceOp::kSum, "ar");
          comm.ReduceScatter(none, none, counts, ReduceOp::kMax, "rs");
          comm.AllGather(none, none, counts, "ag");
          comm.Broadcast(none, ranks - 1, "bc");
          comm.StartAllReduce(none, ReduceOp::kMin, "ar").Wait();
        }
      });
  ASSERT_EQ(recorders.size(), static_cast<size_t>(ranks));
  for (const Recorder& recorder : recorders) {
    ASSERT_EQ(recorder.Records().size(), 15U);
    for (const Record& r : recorder.Records()) {
      EXPECT_EQ(r.state, RecordState::kDone);
      EXPECT_EQ(r.elems, 0);
      EXPECT_EQ(r.bytes, 0);
      EXPECT_EQ(r.sent_bytes, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NothingTest, testing::Values(1, 2, 3, 4),
                         testing::PrintToStringParamName());

TEST(SizeTest, BytesAreElementsTimesTheSizeOfTheType) {
  const auto recorders = RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16,
                        DType::kI64, DType::kI32, DType::kU8}) {
      Bytes x = RandomValues(dtype, 10, 1);
      comm.Broadcast({x.data(), dtype, 10}, 0, std::string(Name(dtype)));
    }
  });
  ASSERT_EQ(recorders.size(), 2U);
  for (const Recorder& recorder : recorders) {
    std::vector<int64_t> bytes;
    for (const Record& r : recorder.Records()) {
      EXPECT_EQ(r.elems, 10);
      bytes.push_back(r.bytes);
    }
    EXPECT_EQ(bytes, (std::vector<int64_t>{80, 40, 20, 20, 80, 40, 10}));
  }
}

TEST(SizeTest, ThatDoesNotFitTheCountsIsRefusedBeforeAnythingIsPosted) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    std::vector<float> x(8, 1);
    std::vector<float> part(4, 2);
    const auto all = [&](size_t n) { return AsBuffer(std::span(x).first(n)); };
    const auto mine = [&](size_t n) {
      return AsBuffer(std::span(part).first(n));
    };
    const std::vector<int64_t> counts = {4, 4};
    for (size_t n : {0, 1, 7}) {
      EXPECT_THROW(comm.ReduceScatter(all(n), mine(4), counts, ReduceOp::kSum,
                                      "whole buffer"),
                   InvalidArgument);
      EXPECT_THROW(comm.AllGather(mine(4), all(n), counts, "whole buffer"),
                   InvalidArgument);
    }
    EXPECT_THROW(
        comm.ReduceScatter(all(8), mine(3), counts, ReduceOp::kSum, "part"),
        InvalidArgument);
    EXPECT_THROW(comm.AllGather(mine(3), all(8), counts, "part"),
                 InvalidArgument);
    EXPECT_THROW(
        comm.AllReduce({x.data(), DType::kF32, -1}, ReduceOp::kSum, "negative"),
        InvalidArgument);
    EXPECT_TRUE(comm.recorder().Records().empty());
    EXPECT_EQ(x, std::vector<float>(8, 1));
    comm.Barrier("after");
  });
}

}  // namespace
}  // namespace collectives
