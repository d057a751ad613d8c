// Groups of ranks over Gloo: how they come together, with options of their own,
// and what rank 0 gets of them.
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/c10d/gather_records.h"
#include "collectives/c10d/process_runner.h"
#include "collectives/c10d/run_rank.h"
#include "collectives/errors.h"
#include "tests/c10d/local_mesh.h"
#include "tests/collectives/oracle.h"

namespace collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// One rank of a group, as a process would be.
struct Rank {
  int rank = 0;
  C10dOptions options;
  milliseconds delay{0};  // before it comes
};

// Runs `fn` as the given ranks of a group of `size`. Result: what each threw,
// or null.
std::vector<std::exception_ptr> RunAsRanks(int size, milliseconds timeout,
                                           const std::vector<Rank>& ranks,
                                           const RankFunction& fn) {
  const std::shared_ptr<Store> store = Store::InProcess();
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      C10dOptions options = ranks[i].options;
      options.host = "127.0.0.1";
      std::this_thread::sleep_for(ranks[i].delay);
      try {
        RunAsRank(store, {ranks[i].rank, size, timeout, options},
                  Recorder::kDefaultCapacity, fn);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// What it says if it is an E; else "".
template <typename E>
std::string TextOf(const std::exception_ptr& error) {
  if (!error) return "no error";
  try {
    std::rethrow_exception(error);
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("another error: ") + e.what();
  }
}

C10dOptions WithoutMatching() {
  C10dOptions options;
  options.is_matching = false;
  return options;
}

TEST(GroupTest, OptionsThatDifferAreRefusedOnEveryRankAndNothingRuns) {
  const auto began = std::chrono::steady_clock::now();
  const auto errors = RunAsRanks(
      3, seconds(60), {{0, {}, {}}, {1, WithoutMatching(), {}}, {2, {}, {}}},
      [](Communicator&) { ADD_FAILURE() << "was run"; });
  for (const auto& error : errors) {
    EXPECT_THAT(TextOf<InvalidArgument>(error),
                AllOf(HasSubstr("settings differ"), HasSubstr("matching on"),
                      HasSubstr("matching off"), HasSubstr("rank 1:")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(30));
}

TEST(GroupTest, ARankThatNeverComesIsNamed) {
  const auto errors =
      RunAsRanks(3, milliseconds(300), {{0, {}, {}}, {2, {}, {}}},
                 [](Communicator&) { ADD_FAILURE() << "was run"; });
  for (const auto& error : errors) {
    EXPECT_THAT(TextOf<TimeoutError>(error),
                AllOf(HasSubstr("cannot connect within 300 ms"),
                      HasSubstr("waiting for rank 1 of 3")));
  }
}

TEST(GroupTest, RanksMayComeInAnyOrder) {
  std::mt19937 random(1);
  for (int run = 0; run < 10; ++run) {
    std::vector<Rank> ranks;
    for (int r = 0; r < 4; ++r) {
      ranks.push_back({r, {}, milliseconds(random() % 50)});
    }
    const auto errors =
        RunAsRanks(4, seconds(60), ranks, [](Communicator& comm) {
          int64_t x = comm.rank();
          comm.AllReduce({&x, DType::kI64, 1}, ReduceOp::kSum, "x");
          EXPECT_EQ(x, 6);
        });
    EXPECT_THAT(errors, Each(std::exception_ptr()));
  }
}

TEST(WithoutMatchingTest, TheBitsAreTheSameOnEveryChannelAndForEverySize) {
  GlooThreadRunner runner(WithoutMatching());
  runner.Run({.ranks = 3}, [](Communicator& comm) {
    const auto second = comm.Duplicate("second");
    for (int64_t elems : {0, 1, 60, 61, 5000}) {
      std::vector<Bytes> inputs;
      for (int r = 0; r < 3; ++r) {
        inputs.push_back(RandomValues(DType::kF32, elems, 10 + r));
      }
      const Bytes folded = SerialFold(DType::kF32, ReduceOp::kAverage, inputs);
      const Bytes& mine = inputs[static_cast<size_t>(comm.rank())];
      PoisonedBuffer a(DType::kF32, mine);
      PoisonedBuffer b(DType::kF32, mine);
      PoisonedBuffer c(DType::kF32, mine);
      const auto all = [elems](PoisonedBuffer& x) {
        return Buffer{x.data(), DType::kF32, elems};
      };
      std::vector<Work> works;
      works.push_back(comm.StartAllReduce(all(a), ReduceOp::kAverage, "a"));
      works.push_back(second->StartAllReduce(all(b), ReduceOp::kAverage, "b"));
      works.push_back(comm.StartBroadcast(all(c), 2, "c"));
      for (Work& work : works) work.Wait();
      EXPECT_TRUE(a.Holds(folded) && a.IsPoisonIntact()) << elems;
      EXPECT_TRUE(b.Holds(folded) && b.IsPoisonIntact()) << elems;
      EXPECT_TRUE(c.Holds(inputs[2]) && c.IsPoisonIntact()) << elems;
    }
  });
}

TEST(WithoutMatchingTest, ABarrierStillReturnsOnlyOnceEveryRankHasCome) {
  GlooThreadRunner runner(WithoutMatching());
  std::atomic<bool> has_come{false};
  runner.Run({.ranks = 2}, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      // Not needed for the result: without a barrier it would be seen.
      std::this_thread::sleep_for(milliseconds(100));
      has_come = true;
    }
    comm.Barrier("b");
    EXPECT_TRUE(has_come);
  });
}

// The channel's thread has modes of its own.
TEST(ThreadLocalModeTest, OfTheCallerChangesNoResult) {
  GlooThreadRunner().Run({.ranks = 2}, [](Communicator& comm) {
    const auto sum = [&comm](bool is_async) {
      std::vector<float> x(5000, 1.0F + comm.rank());
      const Buffer buffer = AsBuffer(std::span(x));
      if (is_async) {
        Work work = comm.StartAllReduce(buffer, ReduceOp::kSum, "x");
        work.Wait();
      } else {
        comm.AllReduce(buffer, ReduceOp::kSum, "x");
      }
      EXPECT_THAT(x, Each(3));
    };
    {
      const c10::InferenceMode guard;
      for (bool is_async : {false, true}) sum(is_async);
      EXPECT_TRUE(c10::InferenceMode::is_enabled());
    }
    const bool was_enabled = c10::GradMode::is_enabled();
    c10::GradMode::set_enabled(false);
    for (bool is_async : {false, true}) sum(is_async);
    EXPECT_FALSE(c10::GradMode::is_enabled());
    c10::GradMode::set_enabled(was_enabled);
  });
}

void ExpectClocks(const std::vector<Recorder>& recorders) {
  for (size_t r = 0; r < recorders.size(); ++r) {
    EXPECT_EQ(recorders[r].rank(), static_cast<int>(r));
    // All ranks have the clock of this machine, as far as can be told.
    EXPECT_EQ(recorders[r].clock().offset_ns, 0);
    if (r == 0) {
      EXPECT_EQ(recorders[r].clock().error_ns, 0);
    } else {
      EXPECT_GT(recorders[r].clock().error_ns, 0);
    }
  }
}

TEST(GatherRecordsTest, RankZeroGetsThoseOfAllRanksAndTheErrorOfTheirClocks) {
  LocalHub hub(3);
  std::vector<std::vector<Recorder>> gathered(3);
  hub.Run([&](Mesh& mesh) {
    Recorder recorder(mesh.rank(), 4);
    for (int i = 0; i < 6 + mesh.rank(); ++i) {
      Record record;
      record.label = std::to_string(i);
      record.posted_ns = 1000 + i;
      recorder.Add(record);
    }
    gathered[static_cast<size_t>(mesh.rank())] =
        GatherRecords(mesh, recorder, seconds(60));
  });
  EXPECT_TRUE(gathered[1].empty());
  EXPECT_TRUE(gathered[2].empty());
  ASSERT_EQ(gathered[0].size(), 3U);
  ExpectClocks(gathered[0]);
  for (size_t r = 0; r < 3; ++r) {
    const auto records = gathered[0][r].Records();
    EXPECT_EQ(gathered[0][r].lost(), 2 + r);
    ASSERT_EQ(records.size(), 4U);
    EXPECT_EQ(records.back().label, std::to_string(5 + r));
    EXPECT_EQ(records.back().posted_ns, static_cast<int64_t>(1005 + r));
  }
}

TEST(GatherRecordsTest, ARankThatNeverAnswersIsALinkError) {
  LocalHub hub(2);
  EXPECT_THROW(GatherRecords(hub.mesh(0), Recorder(0), milliseconds(50)),
               LinkError);
}

TEST(GatherRecordsTest, EveryOperationOfEveryRankIsThereInItsOrder) {
  const auto recorders =
      GlooThreadRunner().Run({.ranks = 4}, [](Communicator& comm) {
        const PhaseScope phase(comm.recorder(), "step", comm.rank());
        std::vector<float> x(12, 1);
        comm.AllReduce(AsBuffer(std::span(x)), ReduceOp::kAverage, "ar");
        const auto second = comm.Duplicate("second");
        second->StartBroadcast(AsBuffer(std::span(x)), 2, "bc").Wait();
        comm.Barrier("b");
      });
  ASSERT_EQ(recorders.size(), 4U);
  ExpectClocks(recorders);
  for (const Recorder& recorder : recorders) {
    const auto records = recorder.Records();
    ASSERT_EQ(records.size(), 4U);
    const char* labels[] = {"ar", "second", "bc", "b"};
    for (size_t i = 0; i < 4; ++i) {
      const Record& r = records[i];
      EXPECT_EQ(r.rank, recorder.rank());
      EXPECT_EQ(r.label, labels[i]);
      EXPECT_EQ(r.state, RecordState::kDone);
      EXPECT_LT(0, r.posted_ns);
      EXPECT_LE(r.posted_ns, r.matched_ns);
      EXPECT_LE(r.matched_ns, r.done_ns);
      EXPECT_LE(r.done_ns, r.wait_ended_ns);
    }
    EXPECT_EQ(records[0].sent_bytes, 72);  // by rule: 2 x 48 x 3/4
    EXPECT_EQ(records[2].channel, "second");
    EXPECT_TRUE(records[2].is_async);
    ASSERT_EQ(recorder.Phases().size(), 1U);
    EXPECT_EQ(recorder.Phases()[0].step, recorder.rank());
    EXPECT_LE(recorder.Phases()[0].begin_ns, records[0].posted_ns);
    EXPECT_GE(recorder.Phases()[0].end_ns, records[3].wait_ended_ns);
  }
}

// What one rank posted last, no rank has matched before.
TEST(GatherRecordsTest, NoRankMatchesBeforeTheLastHasPosted) {
  const auto recorders =
      GlooThreadRunner().Run({.ranks = 3}, [](Communicator& comm) {
        for (int i = 0; i < 20; ++i) comm.Barrier("b");
      });
  for (size_t i = 0; i < 20; ++i) {
    int64_t last_posted_ns = 0;
    for (const Recorder& r : recorders) {
      last_posted_ns = std::max(last_posted_ns, r.Records()[i].posted_ns);
    }
    for (const Recorder& r : recorders) {
      EXPECT_GE(r.Records()[i].matched_ns, last_posted_ns);
    }
  }
}

}  // namespace
}  // namespace collectives
