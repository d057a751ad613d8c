// Two threads that use the communicators of one rank at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "collectives/errors.h"
#include "collectives/rank/rank_state.h"
#include "collectives/shm/shm_communicator.h"

namespace collectives {
namespace {

using ::testing::HasSubstr;

// A group of one, put together by hand so that a test can hold its guard.
struct Alone {
  std::shared_ptr<RankState> state = std::make_shared<RankState>(0, 16);
  ShmCommunicator comm{{std::make_shared<ShmGroup>(1, std::chrono::seconds(60)),
                        state, std::make_shared<ShmChannel>("main", 1)}};
};

std::string RefusalOf(const std::function<void()>& fn) {
  std::string text;
  std::thread([&] {
    try {
      fn();
    } catch (const InvalidArgument& e) {
      text = e.what();
    }
  }).join();
  return text;
}

TEST(SecondCallerTest, IsRefusedWhileTheFirstIsInACall) {
  Alone alone;
  Work work = alone.comm.StartBarrier("x");
  {
    const CallerGuard first(*alone.state);
    const auto is_refused = HasSubstr("rank 0: two threads use");
    EXPECT_THAT(RefusalOf([&] { alone.comm.Barrier("y"); }), is_refused);
    EXPECT_THAT(RefusalOf([&] { alone.comm.StartBarrier("y"); }), is_refused);
    EXPECT_THAT(RefusalOf([&] { alone.comm.Duplicate("y"); }), is_refused);
    EXPECT_THAT(RefusalOf([&] { work.Wait(); }), is_refused);
    EXPECT_THAT(RefusalOf([&] { work.OnDone([] {}); }), is_refused);
  }
  EXPECT_EQ(RefusalOf([&] { alone.comm.Barrier("y"); }), "");
  EXPECT_EQ(RefusalOf([&] { work.Wait(); }), "");
  EXPECT_EQ(alone.state->recorder().Records().size(), 2U);
}

TEST(SecondCallerTest, MayDestroyAWorkMeanwhile) {
  Alone alone;
  Work work = alone.comm.StartBarrier("x");
  const CallerGuard first(*alone.state);
  EXPECT_EQ(RefusalOf([&] { work = Work(); }), "");
}

}  // namespace
}  // namespace collectives
