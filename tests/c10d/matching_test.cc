// What ranks tell one another before data moves, over connections between
// threads.
#include "collectives/c10d/matching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/c10d/local_mesh.h"

namespace collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Operation kOperations[] = {
    Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather,
    Operation::kBroadcast, Operation::kBarrier,       Operation::kDuplicate};

int64_t Soon() { return DeadlineAfter(std::chrono::seconds(60)); }

Call MakeCall(Operation operation, int64_t elems = 5) {
  Call call;
  call.operation = operation;
  call.reduce_op = ReduceOp::kMax;
  call.dtype = DType::kBF16;
  call.elems = elems;
  call.counts = {elems, 0};
  call.root = 1;
  call.label = "bucket 3";
  return call;
}

TEST(EncodeTest, EveryFactComesBack) {
  for (Operation operation : kOperations) {
    for (int64_t elems :
         {int64_t{0}, int64_t{5}, int64_t{1} << 29, (int64_t{1} << 31) + 1,
          std::numeric_limits<int64_t>::max() / 64}) {
      for (const std::string& label :
           {std::string(), std::string("x"), std::string("12345678"),
            std::string("a\0b", 3), std::string(10'000, 'y')}) {
        Call call = MakeCall(operation, elems);
        call.label = label;
        call.is_recomputed = elems == 5;
        const Call back = Decode(Encode(call));
        EXPECT_EQ(Differences(call, back), "");
        EXPECT_EQ(back.counts, call.counts);
      }
    }
  }
}

TEST(EncodeTest, CallsThatDifferHaveOtherBytes) {
  const Call call = MakeCall(Operation::kAllGather);
  const auto differs = [&call](auto change) {
    Call other = call;
    change(other);
    return Encode(other) != Encode(call);
  };
  EXPECT_FALSE(differs([](Call&) {}));
  EXPECT_TRUE(differs([](Call& c) { c.operation = Operation::kAllReduce; }));
  EXPECT_TRUE(differs([](Call& c) { c.reduce_op = ReduceOp::kMin; }));
  EXPECT_TRUE(differs([](Call& c) { c.dtype = DType::kF16; }));
  EXPECT_TRUE(differs([](Call& c) { c.elems = 6; }));
  EXPECT_TRUE(differs([](Call& c) { c.counts = {0, 5}; }));
  EXPECT_TRUE(differs([](Call& c) { c.counts = {5}; }));
  EXPECT_TRUE(differs([](Call& c) { c.root = 0; }));
  EXPECT_TRUE(differs([](Call& c) { c.label = "bucket 4"; }));
  EXPECT_TRUE(differs([](Call& c) { c.is_recomputed = true; }));
  EXPECT_FALSE(differs([](Call& c) { c.is_async = true; }));
}

TEST(DecodeTest, BytesThatAreCutShortOrOutOfRangeAreAnError) {
  const auto bytes = Encode(MakeCall(Operation::kReduceScatter));
  const size_t label = std::string("bucket 3").size();
  for (size_t size = 0; size < bytes.size() - label; ++size) {
    EXPECT_THROW(Decode({bytes.begin(), bytes.begin() + size}), Error) << size;
  }
  // Operation, reduce op, dtype, recomputed or not, and the number of counts.
  for (size_t fact : {0, 1, 2, 5, 6}) {
    for (int64_t value :
         {int64_t{-1}, int64_t{100}, std::numeric_limits<int64_t>::max(),
          std::numeric_limits<int64_t>::min()}) {
      auto changed = bytes;
      std::memcpy(changed.data() + 8 * fact, &value, 8);
      EXPECT_THROW(Decode(changed), Error) << fact << " is " << value;
    }
  }
}

TEST(DecodeTest, RandomBytesAreAnErrorOrACallThatCanBeDescribed) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = Encode(MakeCall(Operation::kAllGather));
    for (int k = 0; k < 3; ++k) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    try {
      EXPECT_FALSE(Describe(Decode(bytes)).empty());
    } catch (const Error&) {
    }
  }
}

TEST(RidesAlongTest, SmallDataDoesWhateverTheRank) {
  const auto rides = [](Operation operation, int64_t elems) {
    return Matching::RidesAlong(MakeCall(operation, elems));  // 2 bytes each
  };
  for (Operation operation : {Operation::kAllReduce, Operation::kReduceScatter,
                              Operation::kAllGather, Operation::kBroadcast}) {
    EXPECT_TRUE(rides(operation, 0));
    EXPECT_TRUE(rides(operation, 120));
    EXPECT_FALSE(rides(operation, 121));
    EXPECT_FALSE(rides(operation, (int64_t{1} << 31) + 1));
  }
  EXPECT_TRUE(rides(Operation::kBarrier, 0));
  EXPECT_TRUE(rides(Operation::kDuplicate, 0));
  Call gather = MakeCall(Operation::kAllGather, 140);
  gather.counts = {20, 120};
  EXPECT_TRUE(Matching::RidesAlong(gather));
  gather.counts = {20, 0, 121};
  EXPECT_FALSE(Matching::RidesAlong(gather));
}

TEST(MeetTest, EqualCallsMatchAndTheirDataHasComeAlong) {
  LocalHub hub(3);
  hub.Run([](Mesh& mesh) {
    Matching matching(mesh, 0);
    for (int i = 0; i < 20; ++i) {
      std::vector<int64_t> x = {mesh.rank() + i, 10 * mesh.rank()};
      Call call = MakeCall(Operation::kAllReduce, 2);
      call.dtype = DType::kI64;
      call.reduce_op = ReduceOp::kSum;
      call.input = call.output = x.data();
      const auto outcome = matching.Meet(call, Soon());
      EXPECT_EQ(outcome.mismatch, "");
      EXPECT_EQ(outcome.left, -1);
      EXPECT_EQ(x[1], 10 * mesh.rank());  // not before Finish
      matching.Finish(call);
      EXPECT_EQ(x, (std::vector<int64_t>{3 + 3 * i, 30}));
    }
  });
}

TEST(MeetTest, GatherScatterBroadcastAndDuplicateFinishToo) {
  LocalHub hub(2);
  hub.Run([](Mesh& mesh) {
    const auto rank = static_cast<size_t>(mesh.rank());
    Matching matching(mesh, 0);
    const auto run = [&](Call call, const void* input, void* output) {
      call.dtype = DType::kI32;
      call.input = input;
      call.output = output;
      EXPECT_EQ(matching.Meet(call, Soon()).mismatch, "");
      matching.Finish(call);
    };
    using Values = std::vector<int32_t>;
    Values all = {1, 2, 3, 4, 5};
    Values part(rank == 0 ? 5 : 0);
    run(MakeCall(Operation::kReduceScatter), all.data(), part.data());
    EXPECT_EQ(part, rank == 0 ? all : Values());

    Values gathered(5);
    Call gather = MakeCall(Operation::kAllGather);
    gather.counts = {2, 3};
    const Values mine = rank == 0 ? Values{7, 8} : Values{9, 10, 11};
    run(gather, mine.data(), gathered.data());
    EXPECT_EQ(gathered, (Values{7, 8, 9, 10, 11}));

    Values sent(5, mesh.rank());
    run(MakeCall(Operation::kBroadcast), sent.data(), sent.data());
    EXPECT_EQ(sent, Values(5, 1));

    int64_t id = 40 + mesh.rank();  // rank 0's proposal wins
    run(MakeCall(Operation::kDuplicate), &id, &id);
    EXPECT_EQ(id, 40);
  });
}

TEST(MeetTest, AMismatchSaysAllFactsOnEveryRankAndTheNextCallMatches) {
  LocalHub hub(3);
  hub.Run([](Mesh& mesh) {
    Matching matching(mesh, 4);
    Call call = MakeCall(Operation::kBarrier);
    call.label = std::string(static_cast<size_t>(100 * mesh.rank()), 'x') +
                 " of " + std::to_string(mesh.rank());
    EXPECT_THAT(
        matching.Meet(call, Soon()).mismatch,
        AllOf(HasSubstr("differ in label"), HasSubstr("[rank 0: barrier ' of"),
              HasSubstr("x of 1']"), HasSubstr("x of 2']")));
    const auto outcome = matching.Meet(MakeCall(Operation::kBarrier), Soon());
    EXPECT_EQ(outcome.mismatch, "");
    EXPECT_EQ(outcome.left, -1);
  });
}

TEST(MeetTest, ARankThatHasLeftIsNamedToThoseThatCall) {
  LocalHub hub(3);
  hub.Run([](Mesh& mesh) {
    Matching matching(mesh, 0);
    if (mesh.rank() == 1) return matching.Leave(Soon());
    const auto outcome = matching.Meet(MakeCall(Operation::kBarrier), Soon());
    EXPECT_EQ(outcome.left, 1);
  });
}

TEST(MeetTest, APeerThatNeverComesIsNamedAtTheDeadline) {
  LocalHub hub(2);
  Matching matching(hub.mesh(0), 0);
  try {
    matching.Meet(MakeCall(Operation::kBarrier),
                  DeadlineAfter(std::chrono::milliseconds(50)));
    FAIL();
  } catch (const LinkError& e) {
    EXPECT_EQ(e.kind(), LinkError::Kind::kTimeout);
    EXPECT_EQ(e.peer(), 1);
  }
}

TEST(DeadlineTest, TheLongestTimeoutIsFarAwayAndDoesNotOverflow) {
  const int64_t deadline_ns = DeadlineAfter(std::chrono::nanoseconds::max());
  EXPECT_GT(deadline_ns, DeadlineAfter(std::chrono::hours(24 * 300)));
}

}  // namespace
}  // namespace collectives
