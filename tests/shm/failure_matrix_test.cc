// Every operation x rank that fails x point x way: the others are told soon and
// fully, what is matched is right, what is not is untouched, and the next world
// works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "collectives/shm/run_ranks.h"
#include "tests/shm/failing_world.h"
#include "tests/shm/known_call.h"

namespace collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Sanitizers slow down the unwinding of an exception tenfold.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::chrono::milliseconds kTellingTime{1000};
#else
constexpr std::chrono::milliseconds kTellingTime{100};
#endif

constexpr Point kPoints[] = {
    Point::kBeforePosting,         Point::kWhileOthersWait,
    Point::kAfterPostingUnmatched, Point::kAfterPostingMatched,
    Point::kInContinuationOfWait,  Point::kInContinuationAtCall,
    Point::kInDestructor,          Point::kAfterDroppingWork,
    Point::kChannelDestroyed,      Point::kCommunicatorDestroyed};

constexpr Operation kOperations[] = {
    Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather,
    Operation::kBroadcast, Operation::kBarrier,       Operation::kDuplicate};

void AddPointsAndWays(FailingWorld world, std::vector<FailingWorld>& worlds) {
  for (Point point : kPoints) {
    for (Way way : {Way::kThrows, Way::kStalls, Way::kLeaves}) {
      world.point = point;
      world.way = way;
      if (MakesSense(world)) worlds.push_back(world);
    }
  }
}

// Three ranks in full; a broadcast from the rank that fails and from another.
// Two and four ranks: the reduction, and its last rank.
std::vector<FailingWorld> Worlds() {
  std::vector<FailingWorld> worlds;
  for (int bad = 0; bad < 3; ++bad) {
    for (Operation operation : kOperations) {
      AddPointsAndWays({3, bad, operation, bad}, worlds);
    }
    AddPointsAndWays({3, bad, Operation::kBroadcast, (bad + 1) % 3}, worlds);
  }
  for (int ranks : {2, 4}) {
    AddPointsAndWays({ranks, ranks - 1, Operation::kAllReduce}, worlds);
  }
  return worlds;
}

std::string CauseText(const FailingWorld& world) {
  const std::string rank = "rank " + std::to_string(world.bad);
  switch (world.way) {
    case Way::kThrows:
      return rank + " failed: boom";
    case Way::kStalls:
      return "timed out after " +
             std::to_string(world.Timeout() / std::chrono::milliseconds(1)) +
             " ms waiting for " + rank + " of " + std::to_string(world.ranks);
    case Way::kLeaves:
      break;
  }
  return rank + " has left: its function returned";
}

// "'main' #1, barrier 'call 1'". The duplicate is call 0 of no channel but its
// own, so calls on it count from 0 too.
std::string PlaceText(const FailingWorld& world,
                      const FailingWorldResult& result, int rank) {
  const bool is_second = world.point == Point::kChannelDestroyed;
  const int failed = world.NumMatched();
  return std::string(is_second ? "'second'" : "'main'") + " #" +
         std::to_string(failed) + ", " +
         result.texts[static_cast<size_t>(2 * rank + failed)];
}

void CheckOther(const FailingWorld& world, const FailingWorldResult& result,
                int rank) {
  const Told& told = result.told[static_cast<size_t>(rank)];
  EXPECT_EQ(told.num_done, world.NumMatched());
  const bool times_out = world.way == Way::kStalls;
  EXPECT_EQ(told.error,
            times_out ? Told::Error::kTimeout : Told::Error::kPeerFailed);
  EXPECT_EQ(told.peer, times_out ? -1 : world.bad);
  EXPECT_THAT(told.what, AllOf(HasSubstr(CauseText(world)),
                               HasSubstr(PlaceText(world, result, rank))));
}

// It went on when all others had failed: its call was given up without it.
void CheckLateComer(const FailingWorld& world, const Told& told) {
  if (world.point == Point::kChannelDestroyed)
    return;  // it has no such channel
  EXPECT_EQ(told.error, Told::Error::kTimeout) << told.what;
  EXPECT_EQ(told.num_done, 0);
}

// The first whose function threw: of those that only left or stalled it is one
// of the others, who says which rank it missed.
void CheckRun(const FailingWorld& world, const FailingWorldResult& result) {
  if (world.way == Way::kThrows) {
    EXPECT_EQ(result.failed_rank, world.bad);
    EXPECT_EQ(result.failed_what,
              "rank " + std::to_string(world.bad) + ": boom");
    return;
  }
  EXPECT_GE(result.failed_rank, 0);
  EXPECT_NE(result.failed_rank, world.bad);
  EXPECT_THAT(result.failed_what, HasSubstr(CauseText(world)));
}

void CheckNextWorldWorks(int ranks) {
  RunRanks({.ranks = ranks}, [ranks](Communicator& comm) {
    KnownCall call({Operation::kAllReduce, ranks, 0, 0, 100}, comm.rank());
    call.Run(comm);
    EXPECT_TRUE(call.IsRight());
  });
}

class FailureMatrixTest : public testing::TestWithParam<FailingWorld> {};

TEST_P(FailureMatrixTest, OthersAreToldAndDataIsRightOrUntouched) {
  const FailingWorld& world = GetParam();
  std::chrono::nanoseconds delay = std::chrono::hours(1);
  // The best of some runs, so that a busy machine fails nobody.
  for (int run = 0; run < 5 && delay > kTellingTime; ++run) {
    const FailingWorldResult result = RunFailing(world);
    for (int rank = 0; rank < world.ranks; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      const Told& told = result.told[static_cast<size_t>(rank)];
      if (rank != world.bad) {
        CheckOther(world, result, rank);
      } else if (world.way == Way::kStalls) {
        CheckLateComer(world, told);
      }
    }
    CheckRun(world, result);
    EXPECT_THAT(result.damages, IsEmpty());
    delay = std::min(delay, result.LongestDelay(world.bad));
    if (HasFailure()) return;
  }
  EXPECT_LE(delay, kTellingTime);
  CheckNextWorldWorks(world.ranks);
}

INSTANTIATE_TEST_SUITE_P(Worlds, FailureMatrixTest, testing::ValuesIn(Worlds()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace collectives
