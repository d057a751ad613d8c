// Calls that differ, and calls that find no match in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"

namespace collectives {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// What `fn` throws as E; "" if nothing.
template <typename E>
std::string ErrorOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

struct Difference {
  std::string fact;
  Operation operation;
  std::function<void(Call&)> change;
};

std::vector<Difference> Differences() {
  return {
      {"operation", Operation::kAllReduce,
       [](Call& c) { c.operation = Operation::kBroadcast; }},
      {"reduce op", Operation::kAllReduce,
       [](Call& c) { c.reduce_op = ReduceOp::kMax; }},
      {"dtype", Operation::kAllReduce, [](Call& c) { c.dtype = DType::kI32; }},
      {"elements", Operation::kAllReduce, [](Call& c) { --c.elems; }},
      {"counts", Operation::kReduceScatter,
       [](Call& c) { std::swap(c.counts.front(), c.counts.back()); }},
      {"counts", Operation::kAllGather,
       [](Call& c) { std::swap(c.counts.front(), c.counts.back()); }},
      {"root", Operation::kBroadcast, [](Call& c) { c.root = 1; }},
      {"label", Operation::kBarrier, [](Call& c) { c.label = "other"; }},
      {"recomputation", Operation::kAllReduce,
       [](Call& c) { c.is_recomputed = true; }},
  };
}

// Rank 0's part is 4 elements, the others' 1.
Call MakeCall(Operation operation, int ranks, std::vector<float>& data) {
  Call call;
  call.operation = operation;
  call.label = "x";
  if (operation == Operation::kBarrier) return call;
  call.dtype = DType::kF32;
  call.elems = 3 + ranks;
  call.input = call.output = data.data();
  if (operation == Operation::kAllReduce) return call;
  if (operation == Operation::kBroadcast) return call;
  call.counts.assign(static_cast<size_t>(ranks), 1);
  call.counts[0] = 4;
  float* part = data.data() + 20;
  if (operation == Operation::kReduceScatter) call.output = part;
  if (operation == Operation::kAllGather) call.input = part;
  return call;
}

class MismatchTest : public testing::TestWithParam<int> {};

TEST_P(MismatchTest, EveryRankGetsAllFactsAndKeepsItsBuffer) {
  const int ranks = GetParam();
  for (const Difference& difference : Differences()) {
    for (int odd : {0, ranks - 1}) {
      RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
        std::vector<float> data(40);
        for (size_t i = 0; i < data.size(); ++i) {
          data[i] =
              static_cast<float>(100 * comm.rank()) + static_cast<float>(i);
        }
        const std::vector<float> before = data;
        const Call usual = MakeCall(difference.operation, ranks, data);
        Call changed = usual;
        difference.change(changed);
        const Call& mine = comm.rank() == odd ? changed : usual;
        const std::string error =
            ErrorOf<MismatchError>([&] { comm.Post(mine).Wait(); });
        EXPECT_THAT(error, AllOf(HasSubstr("differ in " + difference.fact),
                                 HasSubstr(Describe(usual)),
                                 HasSubstr(Describe(changed)),
                                 HasSubstr("rank " + std::to_string(odd)),
                                 HasSubstr("channel 'main' #0")));
        EXPECT_THAT(data, ElementsAreArray(before));
        std::vector<int64_t> one = {1};
        comm.AllReduce(AsBuffer(std::span(one)), ReduceOp::kSum, "after");
        EXPECT_EQ(one[0], ranks);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, MismatchTest, testing::Values(2, 3, 8),
                         [](const auto& info) {
                           return "ranks" + std::to_string(info.param);
                         });

TEST(MismatchTest, ShowsTheFactsOfThreeDifferentRanks) {
  RunRanksHere({.ranks = 3}, [](Communicator& comm) {
    std::vector<float> x(10, 0);
    const auto elems = static_cast<size_t>(comm.rank() + 1);
    const std::string error = ErrorOf<MismatchError>([&] {
      comm.AllReduce(AsBuffer(std::span(x).first(elems)), ReduceOp::kSum, "x");
    });
    for (int n = 1; n <= 3; ++n) {
      EXPECT_THAT(error, HasSubstr("[rank " + std::to_string(n - 1) +
                                   ": all-reduce sum f32 x " +
                                   std::to_string(n) + " 'x']"));
    }
  });
}

TEST(MismatchTest, SaysWhichTenCallsWentBefore) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    for (int i = 0; i < 12; ++i) comm.Barrier("b" + std::to_string(i));
    const std::string error = ErrorOf<MismatchError>(
        [&] { comm.Barrier(comm.rank() == 0 ? "x" : "y"); });
    EXPECT_THAT(error, AllOf(HasSubstr("before it: #2 barrier"),
                             HasSubstr("#11 barrier"), HasSubstr("'b11'"),
                             testing::Not(HasSubstr("'b1'"))));
  });
}

TEST(MismatchTest, AnAsynchronousCallFailsInItsWaitAgainAndAgain) {
  const auto recorders = RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    Work work = comm.StartBarrier(comm.rank() == 0 ? "a" : "b");
    bool has_run = false;
    work.OnDone([&] { has_run = true; });
    EXPECT_THROW(work.Wait(), MismatchError);
    EXPECT_TRUE(work.IsDone());
    EXPECT_THROW(work.Wait(), MismatchError);
    comm.Barrier("after");
    EXPECT_FALSE(has_run);
  });
  for (const Recorder& recorder : recorders) {
    EXPECT_EQ(recorder.Records()[0].state, RecordState::kFailed);
    EXPECT_EQ(recorder.Records()[0].done_ns, 0);
    EXPECT_EQ(recorder.Records()[1].state, RecordState::kDone);
  }
}

TEST(TimeoutTest, NamesTheRankThatNeverCameAndWhatItMissed) {
  constexpr auto kTimeout = milliseconds(500);
  std::latch have_failed(3);
  std::atomic<int64_t> longest_ns{0};
  RunRanksToAFailure(
      {.ranks = 4, .timeout = kTimeout}, [&](Communicator& comm) {
        comm.Barrier("first");
        std::vector<float> x(7, 1);
        const auto reduce = [&] {
          comm.AllReduce(AsBuffer(std::span(x)), ReduceOp::kSum, "bucket 3");
        };
        if (comm.rank() == 2) {
          have_failed.wait();
        }
        const auto began = Clock::now();
        EXPECT_THAT(
            ErrorOf<TimeoutError>(reduce),
            AllOf(HasSubstr("timed out after 500 ms waiting for rank 2 of "
                            "4"),
                  HasSubstr("#1, all-reduce sum f32 x 7 'bucket 3'")));
        const int64_t took_ns = (Clock::now() - began).count();
        if (comm.rank() != 2) {
          int64_t longest = longest_ns;
          while (longest < took_ns &&
                 !longest_ns.compare_exchange_weak(longest, took_ns)) {
          }
          have_failed.count_down();
        }
        EXPECT_EQ(x, std::vector<float>(7, 1));
        // Late or not, the group goes on.
        if (GroupsOutliveFailures()) comm.Barrier("after");
      });
  // The first to reach its deadline speaks for all, and it came first.
  const std::chrono::nanoseconds longest(longest_ns);
  EXPECT_GE(longest, kTimeout);
  EXPECT_LT(longest, kTimeout + std::chrono::seconds(10));
}

TEST(TimeoutTest, NamesAllRanksThatAreMissing) {
  std::latch have_failed(2);
  RunRanksToAFailure(
      {.ranks = 4, .timeout = milliseconds(100)}, [&](Communicator& comm) {
        if (comm.rank() % 2 == 1) return have_failed.wait();
        EXPECT_THAT(ErrorOf<TimeoutError>([&] { comm.Barrier("b"); }),
                    HasSubstr("waiting for ranks 1 3 of 4"));
        have_failed.count_down();
      });
}

TEST(TimeoutTest, ARankThatOnlyPollsIsTold) {
  std::latch has_failed(1);
  RunRanksToAFailure({.ranks = 2, .timeout = milliseconds(50)},
                     [&](Communicator& comm) {
                       if (comm.rank() == 1) return has_failed.wait();
                       Work work = comm.StartBarrier("b");
                       while (!work.IsDone()) std::this_thread::yield();
                       EXPECT_THROW(work.Wait(), TimeoutError);
                       has_failed.count_down();
                     });
}

TEST(TimeoutTest, TheLongestPossibleTimeoutDoesNotOverflow) {
  RunRanksHere({.ranks = 2, .timeout = std::chrono::nanoseconds::max()},
               [](Communicator& comm) { comm.Barrier("b"); });
}

}  // namespace
}  // namespace collectives
