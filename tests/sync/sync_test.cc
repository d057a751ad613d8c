// Guards wait_word.h, set_once.h and chain.h.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "collectives/sync/chain.h"
#include "collectives/sync/set_once.h"
#include "collectives/sync/wait_word.h"

namespace collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

struct Cause {
  int rank = 0;
  std::string what;
};

constexpr seconds kLong{30};  // a lost wake-up costs this much

TEST(WaitWordTest, ReturnsAtOnceWhereTheConditionHolds) {
  WaitWord word;
  const auto began = Clock::now();
  EXPECT_TRUE(word.Await(kLong, [] { return true; }));
  EXPECT_LT(Clock::now() - began, kLong);
}

TEST(WaitWordTest, GivesUpAtTheLimitAndSaysSo) {
  WaitWord word;
  const auto began = Clock::now();
  EXPECT_FALSE(word.Await(milliseconds(20), [] { return false; }));
  EXPECT_GE(Clock::now() - began, milliseconds(20));
}

// Two threads hand a number to and fro: each hand-over is a chance to lose a
// wake-up, which would show as a wait of kLong.
TEST(WaitWordTest, NoWakeUpIsLost) {
  constexpr int kTurns = 20000;
  WaitWord word;
  std::atomic<int> turn{0};
  int plain = 0;  // guarded by `turn`: a missing order is a race for TSan
  const auto play = [&](int parity) {
    for (int t = parity; t < kTurns; t += 2) {
      const auto is_mine = [&] {
        return turn.load(std::memory_order_acquire) == t;
      };
      while (!is_mine()) {
        const auto began = Clock::now();
        word.Await(kLong, is_mine);
        ASSERT_LT(Clock::now() - began, kLong) << "turn " << t;
      }
      ++plain;
      turn.store(t + 1, std::memory_order_release);
      word.NotifyAll();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(plain, kTurns);
}

TEST(WaitWordTest, OneNotificationWakesAllWaiters) {
  WaitWord word;
  std::atomic<bool> is_open{false};
  std::atomic<int> waiting{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      ++waiting;
      const auto began = Clock::now();
      while (!word.Await(kLong, [&] { return is_open.load(); })) {
        ASSERT_LT(Clock::now() - began, kLong);
      }
    });
  }
  while (waiting < 8) std::this_thread::yield();
  is_open = true;
  word.NotifyAll();
  for (std::thread& t : threads) t.join();
}

TEST(SetOnceTest, TheFirstValueStays) {
  SetOnce<Cause> flag;
  EXPECT_EQ(flag.get(), nullptr);
  EXPECT_TRUE(flag.Set({2, "first"}));
  EXPECT_FALSE(flag.Set({1, "second"}));
  ASSERT_NE(flag.get(), nullptr);
  EXPECT_EQ(flag.get()->rank, 2);
  EXPECT_EQ(flag.get()->what, "first");
}

TEST(SetOnceTest, OfThreadsThatSetAtOnceExactlyOneIsFirst) {
  for (int run = 0; run < 200; ++run) {
    SetOnce<Cause> flag;
    std::atomic<int> first{-1};
    std::vector<std::thread> threads;
    for (int r = 0; r < 3; ++r) {
      threads.emplace_back([&, r] {
        if (flag.Set({r, std::string(100, static_cast<char>('a' + r))})) {
          EXPECT_EQ(first.exchange(r), -1);
        }
        const Cause* cause = flag.get();
        ASSERT_NE(cause, nullptr);
        EXPECT_EQ(cause->what[99], 'a' + cause->rank);
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(flag.get()->rank, first);
  }
}

// A node that counts how many there are.
struct Step {
  explicit Step(int) { ++made; }
  void Renew(const Step*) {}
  ChainLink<Step> link;
  static inline int made = 0;
};

TEST(ChainTest, WhoHasLeftHoldsUpNoNode) {
  Step::made = 0;
  Chain<Step> chain(2);
  Step* mine = &chain.first();
  for (int i = 0; i < 5; ++i) mine = &chain.After(*mine);
  chain.Leave(chain.first());
  // Five nodes, which this party has yet to release, and those after them.
  for (Step* at = &chain.first(); at != mine;) {
    Step* const next = &chain.After(*at);
    chain.Release(*at);
    at = next;
  }
  for (int i = 0; i < 1000; ++i) {
    Step& next = chain.After(*mine);
    chain.Release(*mine);
    mine = &next;
  }
  EXPECT_LE(Step::made, 7);
}

}  // namespace
}  // namespace collectives
