// What bench_collectives times is what it says.
#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "collectives/shm/run_ranks.h"
#include "tools/collective_bench/calls.h"
#include "tools/collective_bench/cases.h"
#include "tools/collective_bench/interleave.h"
#include "tools/collective_bench/rows.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::DType;
using collectives::Operation;

using Buffers = std::vector<std::vector<float>>;  // of all ranks

// Small integers: every order of additions is exact.
Buffers Filled(const Case& what) {
  Buffers buffers;
  for (int rank = 0; rank < what.ranks; ++rank) {
    auto& buffer = buffers.emplace_back();
    for (int64_t i = 0; i < what.elems(); ++i) {
      buffer.push_back(static_cast<float>(100 * (rank + 1) + i));
    }
  }
  return buffers;
}

Buffers AfterCall(const Case& what, bool is_async) {
  Buffers buffers = Filled(what);
  collectives::RunRanks({.ranks = what.ranks}, [&](Communicator& comm) {
    float* mine = buffers[static_cast<size_t>(comm.rank())].data();
    CallOf(comm, what, mine, is_async)();
  });
  return buffers;
}

Buffers AfterFloor(const Case& what) {
  Buffers buffers = Filled(what);
  std::vector<void*> pointers;
  for (auto& buffer : buffers) pointers.push_back(buffer.data());
  for (int rank = 0; rank < what.ranks; ++rank) {
    FloorOf(what, rank, pointers)();
  }
  return buffers;
}

class CallsTest : public testing::TestWithParam<Operation> {};

TEST_P(CallsTest, TheFloorDoesWhatTheCallDoes) {
  for (const int ranks : {2, 3, 8}) {
    for (const int64_t elems : {1, 7, 24, 10'001}) {
      const Case what{GetParam(), ranks, 4 * elems, DType::kF32};
      const Buffers expected = AfterCall(what, false);
      EXPECT_NE(expected, Filled(what));
      EXPECT_EQ(AfterFloor(what), expected) << ranks << " ranks, " << elems;
      EXPECT_EQ(AfterCall(what, true), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, CallsTest,
                         testing::Values(Operation::kAllReduce,
                                         Operation::kReduceScatter,
                                         Operation::kAllGather,
                                         Operation::kBroadcast),
                         [](const auto& info) {
                           std::string name(Name(info.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST(FloorTest, SumsBfloat16sAsIntegersOfTwiceTheirSize) {
  std::vector<int32_t> a = {1, 2, 3}, b = {10, 20, 30};
  const Case what{Operation::kAllReduce, 2, 12, DType::kBF16};
  for (const int rank : {0, 1}) FloorOf(what, rank, {a.data(), b.data()})();
  EXPECT_EQ(a, (std::vector<int32_t>{11, 22, 33}));
  EXPECT_EQ(b, a);
}

TEST(InterleaveTest, SummarizesTurns) {
  std::vector<double> us;
  for (int i = 100; i >= 0; --i) us.push_back(i);
  const Times times = Summarize(us);
  EXPECT_EQ(times.median_us, 50);
  EXPECT_EQ(times.p10_us, 10);
  EXPECT_EQ(times.p90_us, 90);
  EXPECT_EQ(Summarize({3}).p90_us, 3);
}

TEST(InterleaveTest, EveryRankMakesTheSameCallsAndSeesTheSameTimes) {
  std::vector<int64_t> calls(3);
  std::vector<std::vector<Times>> seen(3);
  collectives::RunRanks({.ranks = 3}, [&](Communicator& comm) {
    const auto at = static_cast<size_t>(comm.rank());
    const auto count = [&] { ++calls[at]; };
    seen[at] = TimeInterleaved(comm, {{count, false}, {count, true}}, {0});
  });
  EXPECT_GT(calls[0], 0);
  for (size_t rank = 1; rank < 3; ++rank) {
    EXPECT_EQ(calls[rank], calls[0]);
    for (size_t v : {0, 1}) {
      EXPECT_EQ(seen[rank][v].median_us, seen[0][v].median_us);
    }
  }
}

TEST(CasesTest, LeavesOutWhatIsTooLargeForAllRanksTogether) {
  Selection selection = WholeTable();
  selection.operations = {Operation::kAllReduce, Operation::kBarrier};
  selection.bytes = {4, 1000};
  selection.dtypes = {DType::kF32};
  selection.most_bytes = 4000;
  EXPECT_EQ(CasesOf(selection, 4).size(), 3);
  EXPECT_EQ(CasesOf(selection, 5).size(), 2);
}

TEST(CasesTest, BusFactorsAreThoseOfNcclTests) {
  const auto factor = [](Operation operation) {
    return BusFactor({operation, 4, 1024, DType::kF32});
  };
  EXPECT_EQ(factor(Operation::kAllReduce), 1.5);
  EXPECT_EQ(factor(Operation::kReduceScatter), 0.75);
  EXPECT_EQ(factor(Operation::kAllGather), 0.75);
  EXPECT_EQ(factor(Operation::kBroadcast), 1);
  EXPECT_EQ(factor(Operation::kBarrier), 0);
}

TEST(CasesTest, SizesAreReadAsTheyAreShown) {
  EXPECT_EQ(ParseBytes("4"), 4);
  EXPECT_EQ(ParseBytes("16Ki"), 16 << 10);
  EXPECT_EQ(ParseBytes("64Mi"), 64 << 20);
  EXPECT_EQ(ParseBytes("16KiB"), 16 << 10);
  EXPECT_EQ(ParseBytes("64MiB"), 64 << 20);
  EXPECT_EQ(ParseBytes("4B"), 4);
  EXPECT_EQ(BytesText(64 << 20), "64 MiB");
  EXPECT_EQ(BytesText(16 << 10), "16 KiB");
  EXPECT_EQ(BytesText(1500), "1500 B");
  EXPECT_THROW(ParseBytes("4Gi"), collectives::InvalidArgument);
  EXPECT_THROW(ParseBytes("Ki"), collectives::InvalidArgument);
}

TEST(RowsTest, TheWidestRowFitsIntoATerminal) {
  Row row;
  row.what = {Operation::kReduceScatter, 64, 1023 << 20, DType::kBF16};
  row.is_async = true;
  row.ours = {12345678, 1, 12345678};
  row.floor_us = row.blocking_us = 1.0;
  row.gloo_threads_us = row.gloo_processes_us = row.mpi_us = 1e12;
  std::istringstream lines(RowsText({row}) + LegendText());
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80) << line;
  }
}

TEST(RowsTest, RatiosSayHowManyTimesAsLong) {
  Row row;
  row.what = {Operation::kAllReduce, 2, 4096, DType::kF32};
  row.ours = {2, 1, 3};
  row.floor_us = 1.0;
  row.gloo_threads_us = 30.0;
  row.gloo_processes_us = 20.0;
  const std::string text = RowsText({row});
  EXPECT_NE(text.find(" 2.00      -  15.0  10.0     -"), std::string::npos)
      << text;
  const std::string json = RowsJson({}, {row});
  EXPECT_NE(json.find("\"gloo_ratio\": 10.0"), std::string::npos) << json;
  EXPECT_NE(json.find("\"floor_ratio\": 2.0"), std::string::npos) << json;
  EXPECT_NE(json.find("\"mpi_ratio\": null"), std::string::npos) << json;
  EXPECT_EQ(MediansInJson(json, {row.what}), std::vector<double>{2});
  EXPECT_THROW(
      MediansInJson(json, {{Operation::kBroadcast, 2, 4096, DType::kF32}}),
      collectives::Error);
}

}  // namespace
}  // namespace trainsys
