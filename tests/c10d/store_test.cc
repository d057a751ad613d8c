// Every kind of store does the same, and none keeps a caller waiting for ever.
#include "collectives/c10d/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/c10d/local_address.h"
#include "collectives/c10d/store_server.h"
#include "collectives/errors.h"

namespace collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

World WorldAt(int port) {
  World world;
  world.rank = 1;
  world.ranks = 2;
  world.port = port;
  return world;
}

// Two handles on one store, as two ranks have them.
struct Handles {
  std::unique_ptr<StoreServer> server;  // ends last
  std::shared_ptr<Store> mine;
  std::shared_ptr<Store> other;
};

Handles Make(const std::string& kind) {
  Handles handles;
  if (kind == "InProcess") {
    handles.mine = handles.other = Store::InProcess();
  } else if (kind == "InFile") {
    const char* folder = std::getenv("TEST_TMPDIR");
    const std::string path = std::string(folder ? folder : "/tmp") + "/store";
    std::remove(path.c_str());
    handles.mine = Store::InFile(path, 2);
    handles.other = Store::InFile(path, 2);
  } else {
    handles.server = std::make_unique<StoreServer>();
    const World world = WorldAt(handles.server->port());
    handles.mine = Store::Connect(world, seconds(30));
    handles.other = Store::Connect(world, seconds(30));
  }
  return handles;
}

class StoreTest : public testing::TestWithParam<const char*> {
 protected:
  Handles handles_ = Make(GetParam());
  Store& mine_ = *handles_.mine;
  Store& other_ = *handles_.other;
};

TEST_P(StoreTest, BeforeAnybodyHasSetAnythingThereIsNothingToGet) {
  const auto value = std::make_shared<std::optional<std::string>>("unset");
  ASSERT_TRUE(RunWithDeadline(seconds(10), [value, store = handles_.mine] {
    *value = store->TryGet("key");
  })) << "it waits for the first to set something";
  EXPECT_EQ(*value, std::nullopt);
}

TEST_P(StoreTest, WhatOneSetsAnotherGets) {
  mine_.Set("key", "value");
  EXPECT_EQ(other_.TryGet("key"), "value");
  other_.Set("key", std::string("a\0b\n", 4));
  EXPECT_EQ(mine_.TryGet("key"), std::string("a\0b\n", 4));
  mine_.Set("long", std::string(100'000, 'x'));
  EXPECT_EQ(other_.TryGet("long"), std::string(100'000, 'x'));
  EXPECT_EQ(other_.TryGet("another"), std::nullopt);
}

TEST_P(StoreTest, APrefixKeepsKeysApartAndPrefixesNest) {
  const auto first = mine_.WithPrefix("1");
  const auto second = mine_.WithPrefix("2");
  first->Set("key", "of 1");
  EXPECT_EQ(second->TryGet("key"), std::nullopt);
  EXPECT_EQ(mine_.TryGet("key"), std::nullopt);
  second->Set("key", "of 2");
  EXPECT_EQ(first->TryGet("key"), "of 1");
  EXPECT_EQ(other_.WithPrefix("2")->TryGet("key"), "of 2");
  first->WithPrefix("2")->Set("key", "of 1/2");
  EXPECT_EQ(second->TryGet("key"), "of 2");
  EXPECT_EQ(first->host(), mine_.host());
}

TEST_P(StoreTest, OneOfAllThatClaimAtOnceGetsIt) {
  for (int run = 0; run < 10; ++run) {
    const std::string key = "claim " + std::to_string(run);
    std::atomic<int> claimed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back(
          [&, i] { claimed += (i % 2 == 0 ? mine_ : other_).Claim(key); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(claimed, 1);
    EXPECT_FALSE(mine_.Claim(key));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest,
                         testing::Values("InProcess", "InFile", "Network"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

std::string ErrorOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(NetworkStoreTest, NamesItsHostInOneLineWhenThatIsGone) {
  auto server = std::make_unique<StoreServer>();
  World world = WorldAt(server->port());
  world.has_agent_store = true;
  const auto store = Store::Connect(world, seconds(30));
  EXPECT_EQ(store->host(),
            "the launcher at 127.0.0.1:" + std::to_string(world.port));
  // The server accepts one connection a turn; libtorch 1.13 ends the process
  // if it goes before it has accepted them all.
  for (int turn = 0; turn < 100; ++turn) store->TryGet("key");
  server.reset();
  EXPECT_THAT(
      ErrorOf([&] {
        // Newer libtorch does not wait for an answer to this one.
        store->Set("key", "value");
        store->TryGet("key");
      }),
      AllOf(HasSubstr("the store of " + store->host()), Not(HasSubstr("\n"))));
  EXPECT_THAT(ErrorOf([&] { store->TryGet("key"); }),
              HasSubstr("the store of " + store->host()));
}

TEST(NetworkStoreTest, WhereNobodyServesOneConnectingEndsAtTheDeadline) {
  World world;
  {
    const StoreServer server;  // its port is free afterwards
    world = WorldAt(server.port());
  }
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THAT(
      ErrorOf([&] { Store::Connect(world, milliseconds(300)); }),
      AllOf(HasSubstr("rank 0 at 127.0.0.1:" + std::to_string(world.port)),
            Not(HasSubstr("\n"))));
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(20));
}

TEST(RunWithDeadlineTest, SaysWhetherTheFunctionHasReturned) {
  const auto has_run = std::make_shared<std::atomic<bool>>(false);
  EXPECT_TRUE(RunWithDeadline(seconds(60), [has_run] { *has_run = true; }));
  EXPECT_TRUE(*has_run);

  const auto release = std::make_shared<std::promise<void>>();
  const auto has_ended = std::make_shared<std::promise<void>>();
  EXPECT_FALSE(RunWithDeadline(milliseconds(20), [release, has_ended] {
    release->get_future().wait();
    has_ended->set_value();
  }));
  release->set_value();
  has_ended->get_future().wait();  // it has gone on alone
}

TEST(RunWithDeadlineTest, ThrowsWhatTheFunctionThrows) {
  EXPECT_THROW(RunWithDeadline(seconds(60), [] { throw Error("mine"); }),
               Error);
  EXPECT_TRUE(RunWithDeadline(std::chrono::nanoseconds::max(), [] {}));
}

TEST(LocalAddressTest, IsTheLoopbackTowardsThisHost) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1"), "127.0.0.1");
  EXPECT_THAT(LocalAddressTowards("localhost"),
              AnyOf(std::string("127.0.0.1"), std::string("::1")));
}

TEST(LocalAddressTest, OfAnUnknownNameIsAnErrorOfOneLine) {
  EXPECT_THAT(ErrorOf([] { LocalAddressTowards("no-such-host.invalid"); }),
              AllOf(HasSubstr("'no-such-host.invalid'"), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace collectives
