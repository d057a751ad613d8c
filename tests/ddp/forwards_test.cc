// Forwards and backwards that do not come in pairs.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/exact_rank.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Error;
using collectives::Record;
using collectives::Recorder;
using collectives::RunRanksHere;
using ::testing::HasSubstr;

TEST(ForwardsTest, SeveralForwardsMayShareOneBackward) {
  OnRanks(3, [](ExactRank& rank) {
    at::Tensor sum = at::zeros({});
    for (int m = 0; m < 3; ++m) {
      rank.ddp.BeginForward();
      sum = sum + rank.Loss(m);
    }
    sum.backward();
    rank.ddp.FinishGradientSync();
    EXPECT_TRUE(
        EqualBits(GradientsOf(rank.parameters), Expected(3, {0, 1, 2})));
  });
}

TEST(ForwardsTest, ForwardsWhoseOutputIsDroppedChangeNothing) {
  OnRanks(3, [](ExactRank& rank) {
    for (int step = 0; step < 3; ++step) {
      for (int dropped = 0; dropped < 4; ++dropped) {
        rank.ddp.BeginForward();
        rank.Loss(10 + dropped);
      }
      rank.ddp.ZeroGrad();
      rank.ddp.BeginForward();
      rank.Loss(step).backward();
      rank.ddp.FinishGradientSync();
      EXPECT_TRUE(EqualBits(GradientsOf(rank.parameters), Expected(3, {step})));
    }
  });
}

TEST(ForwardsTest, AForwardWhileGradientsAreOnTheirWayIsRefused) {
  OnRanks(2, [](ExactRank& rank) {
    rank.ddp.BeginForward();
    rank.Loss().backward();
    const auto begin = [&] { rank.ddp.BeginForward(); };
    EXPECT_THAT(ErrorOf<Error>(begin),
                HasSubstr("expected FinishGradientSync"));
    {
      const NoSync quiet(rank.ddp);
      EXPECT_THAT(ErrorOf<Error>(begin),
                  HasSubstr("expected FinishGradientSync"));
    }
    {
      const at::NoGradGuard evaluation;
      EXPECT_EQ(ErrorOf<Error>(begin), "no error");
    }
    rank.ddp.FinishGradientSync();  // they have come to no harm
    EXPECT_TRUE(EqualBits(GradientsOf(rank.parameters), Expected(2, {0})));
  });
}

TEST(ForwardsTest, ASecondSynchronizedBackwardIsAnErrorThatNamesTheWayOut) {
  OnRanks(2, [](ExactRank& rank) {
    rank.ddp.BeginForward();
    const at::Tensor first = rank.Loss(0), second = rank.Loss(1);
    first.backward();
    const std::string text = ErrorOf<Error>([&] { second.backward(); });
    EXPECT_THAT(text, HasSubstr("a second gradient"));
    EXPECT_THAT(text, HasSubstr("NoSync"));
    rank.ddp.Reset(text);
    rank.ddp.BeginForward();
    rank.Loss(2).backward();
    rank.ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits(GradientsOf(rank.parameters), Expected(2, {2})));
  });
}

// "ddp #4 all-reduce 'bucket 0'": what a rank did on every channel.
std::vector<std::string> Operations(const Recorder& recorder) {
  std::vector<std::string> operations;
  for (const Record& r : recorder.Records()) {
    operations.push_back(r.channel + " #" + std::to_string(r.sequence) + " " +
                         std::string(Name(r.operation)) + " '" + r.label +
                         "' x " + std::to_string(r.elems));
  }
  return operations;
}

TEST(ForwardsTest, EvaluationBeforeTheFirstStepIsNobodyElsesBusiness) {
  const auto train = [](Communicator& comm) {
    ExactRank rank(comm, {.bucket_bytes = 1, .broadcast_buffers = true});
    const size_t before = rank.NumRecords();
    for (int i = 0; i <= 2 * comm.rank(); ++i) {  // more of it on some ranks
      const at::NoGradGuard evaluation;
      rank.ddp.BeginForward();
      rank.Loss();
    }
    EXPECT_EQ(rank.NumRecords(), before);
    for (int micro_step = 0; micro_step < 6; ++micro_step) {
      std::optional<NoSync> quiet;
      if (micro_step % 2 == 0) quiet.emplace(rank.ddp);
      rank.ddp.BeginForward();
      rank.Loss(micro_step).backward();
      if (quiet) continue;
      rank.ddp.FinishGradientSync();
      EXPECT_TRUE(EqualBits(GradientsOf(rank.parameters),
                            Expected(3, {micro_step - 1, micro_step})));
      rank.ddp.ZeroGrad();
    }
  };
  const std::vector<Recorder> recorders =
      RunRanksHere({.ranks = 3, .timeout = kTimeout}, train);
  for (const Recorder& recorder : recorders) {
    EXPECT_EQ(Operations(recorder), Operations(recorders[0]));
  }
}

}  // namespace
}  // namespace trainsys
