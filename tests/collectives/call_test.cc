#include "collectives/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "collectives/errors.h"

namespace collectives {
namespace {

using ::testing::HasSubstr;

float memory[64];

Call GoodCall(Operation operation) {
  Call call;
  call.operation = operation;
  call.dtype = DType::kF32;
  call.elems = 8;
  call.label = "grads";
  call.input = memory;
  call.output = memory;
  if (operation == Operation::kReduceScatter ||
      operation == Operation::kAllGather) {
    call.counts = {3, 0, 5};
    call.output = memory + 16;
  }
  return call;
}

std::string ErrorOf(const Call& call, int rank = 0) {
  try {
    Validate(call, rank, 3);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "";
}

std::string ErrorAfter(Operation operation,
                       const std::function<void(Call&)>& change, int rank = 0) {
  Call call = GoodCall(operation);
  EXPECT_EQ(ErrorOf(call, rank), "");
  change(call);
  return ErrorOf(call, rank);
}

TEST(ValidateTest, RefusesTheAverageOfIntegersAndSaysWhatToDo) {
  for (DType dtype : {DType::kI64, DType::kI32, DType::kU8}) {
    for (Operation operation :
         {Operation::kAllReduce, Operation::kReduceScatter}) {
      EXPECT_THAT(
          ErrorAfter(operation,
                     [&](Call& c) {
                       c.dtype = dtype;
                       c.reduce_op = ReduceOp::kAverage;
                       if (c.counts.empty()) return;
                       c.output = memory + 32;
                     }),
          HasSubstr("'grads': an average of " + std::string(Name(dtype)) +
                    " is not exact; sum and divide instead"));
    }
  }
}

TEST(ValidateTest, RefusesARootOutsideTheGroup) {
  for (int root : {-1, 3, std::numeric_limits<int>::max()}) {
    EXPECT_THAT(
        ErrorAfter(Operation::kBroadcast, [&](Call& c) { c.root = root; }),
        HasSubstr("expected 0 to 2"));
  }
}

TEST(ValidateTest, RefusesCountsThatDoNotDescribeTheBuffer) {
  for (Operation operation :
       {Operation::kReduceScatter, Operation::kAllGather}) {
    const auto error = [&](std::vector<int64_t> counts, int64_t elems) {
      return ErrorAfter(operation, [&](Call& c) {
        c.counts = std::move(counts);
        c.elems = elems;
      });
    };
    EXPECT_THAT(error({4, 4}, 8), HasSubstr("got 2 counts, expected one for"));
    EXPECT_THAT(error({}, 0), HasSubstr("got 0 counts"));
    EXPECT_THAT(error({9, -1, 0}, 8), HasSubstr("a count is negative"));
    EXPECT_THAT(error({3, 0, 4}, 8), HasSubstr("8 elements, expected the sum"));
    const int64_t huge = std::numeric_limits<int64_t>::max() / 2;
    EXPECT_THAT(error({huge, huge, huge}, SumOf({huge, huge, huge})),
                HasSubstr("overflows"));
  }
}

TEST(ValidateTest, RefusesNegativeAndOverflowingLengths) {
  for (int64_t elems : {int64_t{-1}, std::numeric_limits<int64_t>::max(),
                        std::numeric_limits<int64_t>::max() / 4}) {
    EXPECT_THAT(
        ErrorAfter(Operation::kAllReduce, [&](Call& c) { c.elems = elems; }),
        HasSubstr("length"));
  }
}

TEST(ValidateTest, RefusesNullDataOnlyWhereThereAreElements) {
  for (Operation operation :
       {Operation::kAllReduce, Operation::kBroadcast, Operation::kReduceScatter,
        Operation::kAllGather}) {
    const auto remove_data = [](Call& c) { c.input = c.output = nullptr; };
    EXPECT_THAT(ErrorAfter(operation, remove_data), HasSubstr("null data"));
    EXPECT_EQ(ErrorAfter(operation,
                         [&](Call& c) {
                           remove_data(c);
                           c.elems = 0;
                           c.counts.assign(c.counts.size(), 0);
                         }),
              "");
  }
  // Rank 1 has no part: only the whole buffer must exist.
  EXPECT_EQ(
      ErrorAfter(
          Operation::kReduceScatter, [](Call& c) { c.output = nullptr; }, 1),
      "");
  EXPECT_EQ(ErrorAfter(
                Operation::kAllGather, [](Call& c) { c.input = nullptr; }, 1),
            "");
}

TEST(ValidateTest, AllowsOverlapOnlyInPlace) {
  const auto scatter = [](int rank, int64_t output) {
    return ErrorAfter(
        Operation::kReduceScatter, [&](Call& c) { c.output = memory + output; },
        rank);
  };
  EXPECT_EQ(scatter(0, 0), "");
  EXPECT_EQ(scatter(2, 3), "");
  EXPECT_EQ(scatter(1, 5), "");  // no elements, no overlap
  EXPECT_EQ(scatter(2, 8), "");  // right behind
  EXPECT_THAT(scatter(0, 1), HasSubstr("overlap"));
  EXPECT_THAT(scatter(2, 2), HasSubstr("overlap"));
  EXPECT_THAT(scatter(2, 7), HasSubstr("overlap"));
  const auto gather = [](int rank, int64_t input) {
    return ErrorAfter(
        Operation::kAllGather, [&](Call& c) { c.input = memory + 16 + input; },
        rank);
  };
  EXPECT_EQ(gather(2, 3), "");
  EXPECT_EQ(gather(2, -5), "");
  EXPECT_THAT(gather(2, -4), HasSubstr("overlap"));
  EXPECT_THAT(
      ErrorAfter(Operation::kAllReduce, [](Call& c) { c.output = memory + 1; }),
      HasSubstr("in place"));
}

TEST(DifferencesTest, NamesEachFactThatDiffersAndNothingElse) {
  const Call call = GoodCall(Operation::kReduceScatter);
  const auto after = [&](const std::function<void(Call&)>& change) {
    Call other = call;
    change(other);
    return Differences(call, other);
  };
  EXPECT_EQ(after([](Call&) {}), "");
  EXPECT_EQ(after([](Call& c) { c.operation = Operation::kAllReduce; }),
            "operation");
  EXPECT_EQ(after([](Call& c) { c.reduce_op = ReduceOp::kMax; }), "reduce op");
  EXPECT_EQ(after([](Call& c) { c.dtype = DType::kI32; }), "dtype");
  EXPECT_EQ(after([](Call& c) { c.elems = 9; }), "elements");
  EXPECT_EQ(after([](Call& c) { c.counts = {0, 3, 5}; }), "counts");
  EXPECT_EQ(after([](Call& c) { c.root = 1; }), "root");
  EXPECT_EQ(after([](Call& c) { c.label = "x"; }), "label");
  EXPECT_EQ(after([](Call& c) {
              c.elems = 9;
              c.label = "x";
            }),
            "elements, label");
  // What each rank may choose for itself.
  EXPECT_EQ(after([](Call& c) {
              c.is_async = true;
              c.input = c.output = nullptr;
            }),
            "");
}

TEST(DescribeTest, SaysAllThatMustMatch) {
  EXPECT_EQ(Describe(GoodCall(Operation::kAllReduce)),
            "all-reduce sum f32 x 8 'grads'");
  EXPECT_EQ(Describe(GoodCall(Operation::kReduceScatter)),
            "reduce-scatter sum f32 x 8 (3+0+5) 'grads'");
  EXPECT_EQ(Describe(GoodCall(Operation::kBroadcast)),
            "broadcast f32 x 8 from rank 0 'grads'");
  EXPECT_EQ(Describe(GoodCall(Operation::kBarrier)), "barrier 'grads'");
}

TEST(SentBytesTest, FollowsTheRuleOfEachOperation) {
  const auto sent = [](Operation operation, int64_t elems, int ranks) {
    Call call = GoodCall(operation);
    call.elems = elems;
    return SentBytes(call, ranks);
  };
  EXPECT_EQ(sent(Operation::kAllReduce, 1000, 4), 6000);  // 2 x 4000 x 3/4
  EXPECT_EQ(sent(Operation::kReduceScatter, 1000, 4), 3000);
  EXPECT_EQ(sent(Operation::kAllGather, 1000, 4), 3000);
  EXPECT_EQ(sent(Operation::kBroadcast, 1000, 4), 3000);
  EXPECT_EQ(sent(Operation::kBarrier, 0, 4), 0);
  EXPECT_EQ(sent(Operation::kDuplicate, 0, 4), 0);
  EXPECT_EQ(sent(Operation::kAllReduce, 1000, 1), 0);
  EXPECT_EQ(sent(Operation::kAllReduce, 1, 3), 5);      // 8 x 2/3, rounded down
  EXPECT_EQ(sent(Operation::kReduceScatter, 1, 3), 2);  // 4 x 2/3
}

TEST(SentBytesTest, CountsMoreThanTwoGigabytesRight) {
  Call call = GoodCall(Operation::kAllReduce);
  for (int64_t elems : {int64_t{1} << 29, (int64_t{1} << 31) + 1}) {
    call.elems = elems;
    EXPECT_EQ(ErrorOf(call), "");
    EXPECT_EQ(SentBytes(call, 2), elems * 4);
  }
}

}  // namespace
}  // namespace collectives
