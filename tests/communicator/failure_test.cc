// A rank throws or leaves: the others are told, at once and why, and nothing
// is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <latch>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "collectives/errors.h"
#include "collectives/record/clock.h"
#include "tests/backend/backend.h"

namespace collectives {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};

// Sets off the failure of a rank; `throw_now` notes the time and throws.
using FailingRank =
    std::function<void(Communicator&, const std::function<void()>& throw_now)>;

enum class Others { kComeAtOnce, kComeWhenItHasThrown, kMeetItOnce };

struct Point {
  const char* name;
  Others others;
  FailingRank fail;
};

const Point kPoints[] = {
    {"BeforePosting", Others::kComeAtOnce,
     [](Communicator&, const auto& throw_now) { throw_now(); }},
    {"WithAnUnmatchedWorkInFlight", Others::kComeWhenItHasThrown,
     [](Communicator& comm, const auto& throw_now) {
       Work work = comm.StartBarrier("own");
       throw_now();
     }},
    {"InAContinuationOfTheNextCall", Others::kMeetItOnce,
     [](Communicator& comm, const auto& throw_now) {
       Work work = comm.StartBarrier("ready");
       while (!work.IsDone()) std::this_thread::yield();
       work.OnDone(throw_now);
       comm.Barrier("never posted");
     }},
    {"InAContinuationInsideWait", Others::kMeetItOnce,
     [](Communicator& comm, const auto& throw_now) {
       Work work = comm.StartBarrier("ready");
       work.OnDone(throw_now);
       work.Wait();
     }},
};

template <typename E>
bool Holds(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
}

// Runs a world in which `bad` fails. Result: how long the slowest other rank
// took to be told, in ns.
int64_t RunFailing(int ranks, int bad, const Point& point) {
  std::atomic<int64_t> thrown_ns{0};
  std::vector<int64_t> told_ns(static_cast<size_t>(ranks), 0);
  const auto fn = [&](Communicator& comm) {
    if (comm.rank() == bad) {
      comm.Barrier("started");
      return point.fail(comm, [&] {
        thrown_ns = NowNs();
        throw Boom();
      });
    }
    try {
      comm.Barrier("started");
      if (point.others == Others::kMeetItOnce) comm.Barrier("ready");
      if (point.others == Others::kComeWhenItHasThrown) {
        while (thrown_ns == 0) std::this_thread::yield();
        comm.Barrier("own");  // passes if we come before it is withdrawn
      }
      for (;;) comm.AllGather({}, {}, std::vector<int64_t>(ranks, 0), "next");
    } catch (const PeerFailed& e) {
      told_ns[static_cast<size_t>(comm.rank())] = NowNs();
      EXPECT_EQ(e.rank(), bad);
      // A withdrawn call may be seen a moment before its cause is known.
      EXPECT_THAT(e.what(), AnyOf(HasSubstr("boom"), HasSubstr("withdrew")));
      throw;
    }
  };
  try {
    RunRanksHere({.ranks = ranks}, fn);
    ADD_FAILURE() << "RunRanks did not throw";
  } catch (const RankFailed& e) {
    EXPECT_EQ(e.rank(), bad);
    EXPECT_STREQ(e.what(), ("rank " + std::to_string(bad) + ": boom").c_str());
    EXPECT_TRUE(Holds<Boom>(e.cause()));
  }
  int64_t slowest = 0;
  for (int r = 0; r < ranks; ++r) {
    if (r == bad) continue;
    EXPECT_NE(told_ns[static_cast<size_t>(r)], 0) << "rank " << r;
    slowest = std::max(slowest, told_ns[static_cast<size_t>(r)] - thrown_ns);
  }
  return slowest;
}

// ThreadSanitizer slows down the unwinding of an exception tenfold.
#if defined(__SANITIZE_THREAD__)
constexpr int kSlowness = 10;
#else
constexpr int kSlowness = 1;
#endif

class FailureTest
    : public testing::TestWithParam<std::tuple<int, bool, size_t>> {};

TEST_P(FailureTest, EveryOtherRankIsToldSoon) {
  const auto [ranks, is_last, point] = GetParam();
  const int bad = is_last ? ranks - 1 : 0;
  int64_t quickest = std::numeric_limits<int64_t>::max();
  // The best of some runs, so that a busy machine fails nobody.
  for (int run = 0; run < 5; ++run) {
    quickest = std::min(quickest, RunFailing(ranks, bad, kPoints[point]));
  }
  EXPECT_LT(std::chrono::nanoseconds(quickest), kSlowness * TellingTime());
  RunRanksHere({.ranks = ranks},
               [](Communicator& comm) { comm.Barrier("next"); });
}

INSTANTIATE_TEST_SUITE_P(
    Points, FailureTest,
    testing::Combine(testing::Values(2, 4, 8, 64), testing::Bool(),
                     testing::Range(size_t{0}, std::size(kPoints))),
    [](const auto& info) {
      return "ranks" + std::to_string(std::get<0>(info.param)) + "_" +
             (std::get<1>(info.param) ? "last" : "first") + "_" +
             kPoints[std::get<2>(info.param)].name;
    });

TEST(FailureTest, ARankThatReturnsEarlyIsNamed) {
  try {
    RunRanksHere({.ranks = 3}, [](Communicator& comm) {
      comm.Barrier("all");
      if (comm.rank() == 1) return;
      comm.Barrier("two only");
    });
    FAIL() << "nobody missed rank 1";
  } catch (const RankFailed& e) {
    EXPECT_TRUE(Holds<PeerFailed>(e.cause()));
    EXPECT_THAT(e.what(), AllOf(HasSubstr("rank 1 has left"),
                                HasSubstr("'main' #1, barrier 'two only'")));
  }
}

TEST(FailureTest, ARankThatReturnsEarlyIsNamedToThoseWhoComeLater) {
  std::latch has_failed(1);
  EXPECT_THROW(RunRanksHere({.ranks = 3},
                            [&](Communicator& comm) {
                              if (comm.rank() == 1) return;
                              // Gloo learns who has left when all others came.
                              if (comm.rank() == 2 && GroupsOutliveFailures()) {
                                has_failed.wait();
                              }
                              try {
                                comm.Barrier("two only");
                              } catch (const PeerFailed& e) {
                                EXPECT_EQ(e.rank(), 1);
                                has_failed.count_down(comm.rank() == 0);
                                throw;
                              }
                            }),
               RankFailed);
}

TEST(FailureTest, AMatchedCollectiveRunsToItsEndThoughARankThrows) {
  constexpr size_t kElems = 4 << 20;
  std::latch have_posted(2);
  std::atomic<int> right{0};
  const auto fn = [&](Communicator& comm) {
    std::vector<float> x(kElems);
    for (size_t i = 0; i < kElems; ++i) {
      x[i] = static_cast<float>(i % 1024) + static_cast<float>(comm.rank());
    }
    if (comm.rank() == 1) have_posted.wait();
    Work work =
        comm.StartAllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, "big");
    if (comm.rank() == 1) throw Boom();
    have_posted.count_down();
    work.Wait();
    bool is_right = true;
    for (size_t i = 0; i < kElems; ++i) {
      is_right &= x[i] == static_cast<float>(3 * (i % 1024) + 3);
    }
    right += is_right;
  };
  EXPECT_THROW(RunRanksHere({.ranks = 3}, fn), RankFailed);
  EXPECT_EQ(right, 2);
}

TEST(FailureTest, AnUnmatchedWorkIsWithdrawnWhenAnExceptionUnwindsIt) {
  std::latch is_withdrawn(1);
  RunRanksToAFailure({.ranks = 2}, [&](Communicator& comm) {
    std::vector<float> x(10, static_cast<float>(comm.rank()));
    const auto before = x;
    const Buffer buffer = AsBuffer(std::span(x));
    bool has_run = false;
    if (comm.rank() == 0) {
      try {
        Work work = comm.StartAllReduce(buffer, ReduceOp::kSum, "x");
        work.OnDone([&] { has_run = true; });
        throw Boom();
      } catch (const Boom&) {
        is_withdrawn.count_down();
      }
    } else {
      is_withdrawn.wait();
      try {
        comm.AllReduce(buffer, ReduceOp::kSum, "x");
        ADD_FAILURE() << "rank 0 had withdrawn";
      } catch (const PeerFailed& e) {
        EXPECT_EQ(e.rank(), 0);
        EXPECT_THAT(e.what(), HasSubstr("rank 0 withdrew its call"));
      }
    }
    EXPECT_EQ(x, before);
    EXPECT_FALSE(has_run);
    if (!GroupsOutliveFailures()) return;
    comm.Barrier("it was caught: the group goes on");
    EXPECT_FALSE(has_run);
  });
}

TEST(FailureTest, AContinuationOfAnUnwoundWorkIsNotRunThoughItsRoundIsDone) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    bool has_run = false;
    try {
      Work work = comm.StartBarrier("x");
      while (!work.IsDone()) std::this_thread::yield();
      work.OnDone([&] { has_run = true; });
      throw Boom();
    } catch (const Boom&) {
    }
    comm.Barrier("after");
    EXPECT_FALSE(has_run);
  });
}

TEST(FailureTest, DuplicateFailsLikeAnyCollective) {
  EXPECT_THROW(RunRanksHere({.ranks = 3},
                            [](Communicator& comm) {
                              if (comm.rank() == 1) throw Boom();
                              EXPECT_THROW(comm.Duplicate("second"),
                                           PeerFailed);
                            }),
               RankFailed);
}

TEST(FailureTest, AnExceptionThatIsNoStdExceptionHasANameToo) {
  try {
    RunRanksHere({.ranks = 1}, [](Communicator&) { throw 7; });
    FAIL();
  } catch (const RankFailed& e) {
    EXPECT_STREQ(e.what(), "rank 0: an exception that is no std::exception");
    EXPECT_TRUE(Holds<int>(e.cause()));
  }
}

int NumThreads() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "Threads:") break;
  }
  int threads = 0;
  status >> threads;
  return threads;
}

void FailWithWorksInFlight(int world) {
  const int bad = world % 4;
  const auto fn = [&](Communicator& comm) {
    const auto second = comm.Duplicate("second");
    std::vector<float> x(50'000, 1);
    std::vector<float> y(10, 1);
    Work large =
        comm.StartAllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, "x");
    large.OnDone([&] { y[0] = 2; });
    if (comm.rank() == bad) throw Boom();
    Work small =
        second->StartAllReduce(AsBuffer(std::span(y)), ReduceOp::kSum, "y");
    small.Wait();
  };
  EXPECT_THROW(RunRanksHere({.ranks = 4}, fn), RankFailed);
}

// Run under AddressSanitizer it also finds what is freed too early or never.
TEST(FailureTest, ManyFailingWorldsLeaveNothingBehind) {
  // Over Gloo a failure takes a second to be understood.
  const int worlds = GroupsOutliveFailures() ? 200 : 5;
  const auto deadline_ns = NowNs() + 10'000'000'000;
  // The process's workers may still be starting: they are what stays.
  const int stays =
      1 + static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  for (int world = 0; world < worlds; ++world) FailWithWorksInFlight(world);
  while (NumThreads() > stays + 1 && NowNs() < deadline_ns) {
    std::this_thread::yield();  // joined threads vanish a little later
  }
  EXPECT_LE(NumThreads(), stays + 1);  // TSan has a thread of its own
}

}  // namespace
}  // namespace collectives
