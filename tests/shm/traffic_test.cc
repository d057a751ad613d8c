// Holds the table of docs/collectives.md, "Operations", against counters: what
// a collective reads and writes, how often its ranks meet, what it would send.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "collectives/call.h"
#include "collectives/shm/movement.h"
#include "collectives/shm/run_ranks.h"

namespace collectives {
namespace {

constexpr int64_t kElems = 1000;  // f32, of the whole buffer
constexpr int64_t kBytes = 4 * kElems;

struct Row {
  Operation operation;
  bool is_in_place;
  // In units of S, the bytes of the whole buffer, for N ranks.
  int64_t (*reads)(int64_t n);
  int64_t (*writes)(int64_t n);
};

const Row kTable[] = {
    {Operation::kAllReduce, true, [](int64_t n) { return n; },
     [](int64_t n) { return n; }},
    {Operation::kReduceScatter, false, [](int64_t n) { return n; },
     [](int64_t) { return int64_t{1}; }},
    {Operation::kReduceScatter, true, [](int64_t n) { return n; },
     [](int64_t) { return int64_t{1}; }},
    {Operation::kAllGather, false, [](int64_t) { return int64_t{1}; },
     [](int64_t n) { return n; }},
    {Operation::kAllGather, true, [](int64_t) { return int64_t{1}; },
     [](int64_t n) { return n - 1; }},
    {Operation::kBroadcast, true, [](int64_t) { return int64_t{1}; },
     [](int64_t n) { return n - 1; }},
    {Operation::kBarrier, true, [](int64_t) { return int64_t{0}; },
     [](int64_t) { return int64_t{0}; }},
};

// Uneven, one of them empty where there are three ranks or more.
std::vector<int64_t> Counts(int ranks) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks), kElems / ranks);
  counts[0] += kElems % ranks;
  if (ranks > 2) {
    counts[0] += counts[1];
    counts[1] = 0;
  }
  return counts;
}

struct RankMemory {
  std::vector<float> whole = std::vector<float>(kElems);
  std::vector<float> part = std::vector<float>(kElems);
};

Call CallOf(const Row& row, int rank, int ranks, RankMemory& memory) {
  Call call;
  call.operation = row.operation;
  call.dtype = DType::kF32;
  call.elems = row.operation == Operation::kBarrier ? 0 : kElems;
  call.input = call.output = memory.whole.data();
  const bool scatters = row.operation == Operation::kReduceScatter;
  if (scatters || row.operation == Operation::kAllGather) {
    call.counts = Counts(ranks);
    float* const part = row.is_in_place
                            ? memory.whole.data() + OffsetOf(call, rank)
                            : memory.part.data();
    (scatters ? call.output : *const_cast<void**>(&call.input)) = part;
  }
  Validate(call, rank, ranks);
  return call;
}

// In pieces that fit no rank's part.
Traffic Moved(const Row& row, int ranks) {
  std::vector<RankMemory> memory(static_cast<size_t>(ranks));
  std::vector<Call> calls;
  std::vector<const Call*> all;
  for (int r = 0; r < ranks; ++r) {
    calls.push_back(CallOf(row, r, ranks, memory[static_cast<size_t>(r)]));
  }
  for (const Call& call : calls) all.push_back(&call);
  Movement movement;
  movement.Plan(all);
  Traffic traffic;
  constexpr int64_t kPiece = 77;
  for (int64_t at = 0; at < movement.elems(); at += kPiece) {
    traffic += movement.Run(at, std::min(kPiece, movement.elems() - at));
  }
  return traffic;
}

TEST(TrafficTest, ReadsAndWritesAreThoseOfTheTable) {
  for (const Row& row : kTable) {
    for (const int ranks : {2, 3, 4, 7, 8}) {
      const Traffic traffic = Moved(row, ranks);
      const std::string what = std::string(Name(row.operation)) + " of " +
                               std::to_string(ranks) +
                               (row.is_in_place ? " in place" : " apart");
      EXPECT_EQ(traffic.read, row.reads(ranks) * kBytes) << what;
      EXPECT_EQ(traffic.written, row.writes(ranks) * kBytes) << what;
    }
  }
}

void CallEach(Communicator& comm) {
  std::vector<float> whole(kElems), part(kElems);
  const auto counts = Counts(comm.ranks());
  const auto mine = AsBuffer(
      std::span(part.data(),
                static_cast<size_t>(counts[static_cast<size_t>(comm.rank())])));
  const auto all = AsBuffer(std::span(whole));
  comm.AllReduce(all, ReduceOp::kSum, "x");
  comm.ReduceScatter(all, mine, counts, ReduceOp::kSum, "x");
  comm.AllGather(mine, all, counts, "x");
  comm.Broadcast(all, 0, "x");
  comm.Barrier("x");
  comm.Duplicate("other");
}

// One sequence number is one meeting. By rule, of S bytes: twice S(N-1)/N for
// the all-reduce, once for the next three, nothing for the last two.
TEST(TrafficTest, EachOperationMeetsOnceAndSendsWhatTheTableSays) {
  constexpr int kRanks = 4;
  constexpr int64_t kShare = kBytes / kRanks * (kRanks - 1);
  const std::vector<int64_t> sent{2 * kShare, kShare, kShare, kShare, 0, 0};
  for (const Recorder& recorder : RunRanks({.ranks = kRanks}, CallEach)) {
    const std::vector<Record> records = recorder.Records();
    ASSERT_EQ(records.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(records[i].sequence, i);
      EXPECT_EQ(records[i].sent_bytes, sent[i]) << Name(records[i].operation);
    }
  }
}

}  // namespace
}  // namespace collectives
