// Why a group has failed: every rank that answers finds the same.
#include "collectives/c10d/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/c10d/store_server.h"

namespace collectives {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr milliseconds kTimeout{300};
using Kind = Failure::Kind;

LinkError Lost(int peer) {
  return LinkError(LinkError::Kind::kLost, peer, "lost");
}
LinkError Late(int peer) {
  return LinkError(LinkError::Kind::kTimeout, peer, "late");
}
const Standing kHere{"main", 7, "barrier 'b'"};

// The verdicts of the ranks of one store.
class Ranks {
 public:
  explicit Ranks(int ranks,
                 const std::shared_ptr<Store>& store = Store::InProcess()) {
    for (int r = 0; r < ranks; ++r) {
      verdicts_.push_back(std::make_unique<Verdict>(store, r, ranks, kTimeout));
    }
  }

  Verdict& operator[](int rank) {
    return *verdicts_[static_cast<size_t>(rank)];
  }

  // What each of `who` finds at the same time, given the rank it has lost.
  template <typename Fn>
  std::vector<Failure> Find(const std::vector<int>& who, Fn error_of) {
    std::vector<Failure> found(who.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < who.size(); ++i) {
      threads.emplace_back([this, &found, &who, &error_of, i] {
        found[i] = (*this)[who[i]].Find(error_of(who[i]), kHere);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return found;
  }

 private:
  std::vector<std::unique_ptr<Verdict>> verdicts_;
};

TEST(VerdictTest, TheCauseThatARankAnnouncedIsFoundByAllThatLoseIt) {
  Ranks ranks(4);
  const Failure own = ranks[2].Announce({2, "boom"});
  EXPECT_EQ(own.kind, Kind::kPeer);
  EXPECT_EQ(own.rank, 2);
  for (const Failure& found : ranks.Find(
           {0, 1, 3}, [](int rank) { return Lost(rank == 0 ? 2 : 0); })) {
    EXPECT_EQ(found.kind, Kind::kPeer);
    EXPECT_EQ(found.rank, 2);
    EXPECT_FALSE(found.is_withdrawal);
    EXPECT_EQ(found.what, "rank 2 failed: boom");
  }
}

TEST(VerdictTest, OfTwoCausesOneIsFoundByAll) {
  Ranks ranks(4);
  std::thread other([&] { ranks[1].Announce({1, "first"}); });
  ranks[2].Announce({2, "second"});
  other.join();
  const auto found =
      ranks.Find({0, 3}, [](int rank) { return Lost(rank == 0 ? 1 : 2); });
  EXPECT_THAT(found[0].what, AnyOf(std::string("rank 1 failed: first"),
                                   std::string("rank 2 failed: second")));
  EXPECT_EQ(found[0].what, found[1].what);
  EXPECT_EQ(found[0].rank, found[1].rank);
}

TEST(VerdictTest, AfterADeadlineTheSilentAreNamedByAllWhomeverTheyWaitedFor) {
  Ranks ranks(5);
  // Rank 0 waits for rank 3, which waits for rank 1 itself.
  for (const Failure& found : ranks.Find(
           {0, 2, 3}, [](int rank) { return Late(rank == 0 ? 3 : 1); })) {
    EXPECT_EQ(found.kind, Kind::kTimeout);
    EXPECT_EQ(found.rank, 1);
    EXPECT_EQ(found.what, "timed out after 300 ms waiting for ranks 1 4 of 5");
  }
}

TEST(VerdictTest, ARankWhoseConnectionClosedAndWhoSaysNothingIsGone) {
  Ranks ranks(3);
  for (const Failure& found : ranks.Find({0, 2}, [](int) { return Lost(1); })) {
    EXPECT_EQ(found.kind, Kind::kPeer);
    EXPECT_EQ(found.rank, 1);
    EXPECT_THAT(found.what, HasSubstr("rank 1 is gone"));
  }
}

// Rank 0 sees only that rank 2 has closed its connections, because of rank 1.
TEST(VerdictTest, TheOneThatIsGoneIsNamedEvenToThoseWhoLostAnother) {
  Ranks ranks(3);
  for (const Failure& found :
       ranks.Find({0, 2}, [](int rank) { return Lost(rank == 0 ? 2 : 1); })) {
    EXPECT_EQ(found.kind, Kind::kPeer);
    EXPECT_EQ(found.rank, 1) << found.what;
  }
}

TEST(VerdictTest, AWithdrawnCallIsSaidToBeOne) {
  Ranks ranks(2);
  EXPECT_TRUE(ranks[1].Withdraw().is_withdrawal);
  const Failure found = ranks[0].Find(Lost(1), kHere);
  EXPECT_EQ(found.rank, 1);
  EXPECT_THAT(found.what, HasSubstr("rank 1 withdrew its call"));
}

TEST(VerdictTest, TheCauseOfAWithdrawalIsFoundWhenItFollows) {
  Ranks ranks(2);
  ranks[1].Withdraw();
  ranks[1].Announce({1, "boom"});
  EXPECT_EQ(ranks[0].Find(Lost(1), kHere).what, "rank 1 failed: boom");
}

TEST(VerdictTest, WhereALinkAloneBrokeBothAgreeAndSayWhereTheyWere) {
  Ranks ranks(2);
  const auto found =
      ranks.Find({0, 1}, [](int rank) { return Lost(1 - rank); });
  EXPECT_EQ(found[0].what, found[1].what);
  EXPECT_THAT(found[0].what,
              AllOf(HasSubstr("the connection to rank"), HasSubstr("is lost"),
                    HasSubstr("it was at main #7 barrier 'b'")));
}

TEST(VerdictTest, AStoreThatIsGoneIsNamedAndKeepsNobodyWaiting) {
  auto server = std::make_unique<StoreServer>();
  World world;
  world.rank = 1;
  world.ranks = 2;
  world.port = server->port();
  const auto store = Store::Connect(world, std::chrono::seconds(30));
  // The server accepts one connection a turn; libtorch 1.13 ends the process
  // if it goes before it has accepted them all.
  for (int turn = 0; turn < 100; ++turn) store->TryGet("key");
  Ranks ranks(2, store);
  server.reset();
  const auto began = std::chrono::steady_clock::now();
  const Failure found = ranks[1].Find(Lost(0), kHere);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  EXPECT_EQ(found.kind, Kind::kPeer);
  EXPECT_EQ(found.rank, 0);
  EXPECT_THAT(found.what, AllOf(HasSubstr("rank 0 at 127.0.0.1:" +
                                          std::to_string(world.port)),
                                HasSubstr("serves the store")));
}

}  // namespace
}  // namespace collectives
