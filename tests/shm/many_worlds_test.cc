// Hundreds of worlds in one process, one after another, many of which fail:
// none leaves a thread, a descriptor or memory behind.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "collectives/errors.h"
#include "collectives/record/clock.h"
#include "collectives/shm/run_ranks.h"
#include "tests/shm/known_call.h"

namespace collectives {
namespace {

constexpr int kWorlds = 500;
constexpr int kWarmUp = 100;  // the workers have started, the heap has grown

struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};

enum class End {
  kAllIsWell,
  kThrows,
  kThrowsInContinuation,
  kLeaves,
  kStalls,
  kDropsWorks,
  kMismatch,
};
constexpr int kNumEnds = 7;

// On two channels: something of every operation, several in flight, some large
// enough for the workers. The last rank ends it in one of the ways.
class World {
 public:
  World(int number, End end)
      : ranks_(1 + number % 8), end_(end), has_failed_each_(ranks_ - 1) {}

  int ranks() const { return ranks_; }
  bool Fails() const { return end_ != End::kAllIsWell && ranks_ > 1; }

  void Run() {
    const auto timeout = end_ == End::kStalls && Fails()
                             ? std::chrono::nanoseconds(kShortTimeout)
                             : std::chrono::minutes(1);
    RunRanks({.ranks = ranks_, .timeout = timeout},
             [this](Communicator& comm) { RunRank(comm); });
  }

 private:
  static constexpr std::chrono::milliseconds kShortTimeout{20};

  struct CountsDown {
    std::latch& latch;
    int64_t by;
    ~CountsDown() { latch.count_down(by); }
  };

  void RunRank(Communicator& comm) {
    const bool is_last = comm.rank() == ranks_ - 1;
    const CountsDown counts_down{has_failed_each_, is_last ? 0 : 1};
    const auto calls = MakeCalls(comm.rank());
    const auto second = comm.Duplicate("second");
    std::vector<Work> works;
    int num_run = 0;
    for (size_t i = 0; i < calls.size(); ++i) {
      works.push_back(calls[i]->Start(i % 2 == 0 ? comm : *second));
      works.back().OnDone([&num_run] { ++num_run; });
    }
    if (Fails() && is_last) return FailHere(comm, works);
    if (Fails()) return comm.Barrier("not all");
    for (Work& work : works) work.Wait();
    EXPECT_EQ(num_run, static_cast<int>(calls.size()));
    for (const auto& call : calls) EXPECT_TRUE(call->IsRight());
  }

  void FailHere(Communicator& comm, std::vector<Work>& works) {
    switch (end_) {
      case End::kThrowsInContinuation:
        works.back().OnDone([] { throw Boom(); });
        works.back().Wait();
        [[fallthrough]];
      case End::kAllIsWell:
      case End::kThrows:
        throw Boom();
      case End::kStalls:
        return has_failed_each_.wait();
      case End::kDropsWorks:
        works.clear();
        return;
      case End::kMismatch:
        return comm.Barrier("another");
      case End::kLeaves:
        return;
    }
  }

  std::vector<std::unique_ptr<KnownCall>> MakeCalls(int rank) const {
    constexpr Operation kOperations[] = {
        Operation::kAllReduce, Operation::kReduceScatter,
        Operation::kBarrier,   Operation::kAllGather,
        Operation::kBroadcast, Operation::kAllReduce};
    constexpr int64_t kElems[] = {20'000, 1000, 0, 30, 500, 1};
    std::vector<std::unique_ptr<KnownCall>> calls;
    for (size_t i = 0; i < std::size(kOperations); ++i) {
      calls.push_back(std::make_unique<KnownCall>(
          KnownCallKind{kOperations[i], ranks_, static_cast<int>(i), ranks_ - 1,
                        kElems[i]},
          rank));
    }
    return calls;
  }

  const int ranks_;
  const End end_;
  std::latch has_failed_each_;
};

void RunWorld(int number) {
  World world(number, static_cast<End>(number / 8 % kNumEnds));
  if (world.Fails()) {
    EXPECT_THROW(world.Run(), RankFailed);
  } else {
    world.Run();
  }
}

struct Held {
  int64_t threads = 0;
  int64_t descriptors = 0;
  int64_t heap_bytes = 0;
};

int64_t NumEntries(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return std::distance(begin(entries), end(entries));
}

// Under sanitizers the heap is not malloc's; AddressSanitizer looks for leaks
// at the end.
Held HeldNow() {
  return {NumEntries("/proc/self/task"), NumEntries("/proc/self/fd"),
          static_cast<int64_t>(mallinfo2().uordblks)};
}

// A joined thread vanishes, and a worker lets go of its last round, a moment
// later: the least of what is held until it is within `most`.
Held LeastHeld(const Held& most) {
  const int64_t deadline_ns = NowNs() + 10'000'000'000;
  Held least = HeldNow();
  const auto is_within = [&] {
    return least.threads <= most.threads &&
           least.descriptors <= most.descriptors &&
           least.heap_bytes <= most.heap_bytes;
  };
  while (!is_within() && NowNs() < deadline_ns) {
    std::this_thread::yield();
    const Held now = HeldNow();
    least = {std::min(least.threads, now.threads),
             std::min(least.descriptors, now.descriptors),
             std::min(least.heap_bytes, now.heap_bytes)};
  }
  return least;
}

// 4 KiB are ten bytes a world. Where glibc keeps caches for each thread, what
// lies in them counts as held, and those of the workers fill up slowly: by 10
// to 30 KiB, measured; one round a world would be over 100.
int64_t HeapMarginBytes() {
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  const bool has_caches =
      !tunables || !std::strstr(tunables, "glibc.malloc.tcache_count=0");
  return has_caches ? 64 << 10 : 4 << 10;
}

TEST(ManyWorldsTest, LeaveNoThreadNoDescriptorAndNoMemory) {
  Held most;
  for (int world = 0; world < kWorlds; ++world) {
    if (world == kWarmUp) {
      most = HeldNow();
      most.heap_bytes += HeapMarginBytes();
    }
    RunWorld(world);
    ASSERT_FALSE(HasFailure()) << "world " << world;
  }
  const Held held = LeastHeld(most);
  EXPECT_LE(held.threads, most.threads);
  EXPECT_LE(held.descriptors, most.descriptors);
  EXPECT_LE(held.heap_bytes, most.heap_bytes);
}

}  // namespace
}  // namespace collectives
