#include "trainsys/train/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "collectives/errors.h"
#include "collectives/shm/run_ranks.h"
#include "tests/train/ranks_apart.h"
#include "trainsys/model/transformer_lm.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/tensor/tensor_memory.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using enum Partition;
using ::testing::AllOf;
using ::testing::HasSubstr;

ByteDataset ShortText() {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the cat sat on the mat; ";
  return ByteDataset::FromBytes(text, /*context=*/16);
}

JobOptions SmallJob() {
  JobOptions options;
  options.ranks = 2;
  options.steps = 3;
  options.batch = 2;
  return options;
}

JobResult RunOnThreads(const JobOptions& options, const ByteDataset& data,
                       const StepObserver& observer = {}) {
  collectives::ThreadRunner runner;
  return RunJob(runner, options, data, observer);
}

void ExpectSameTraining(const JobResult& a, const JobResult& b) {
  EXPECT_EQ(a.losses, b.losses);
  for (const RankSummary& rank : b.ranks) {
    EXPECT_EQ(rank.parameter_hash, a.ranks[0].parameter_hash);
  }
}

TEST(RunJobTest, RanksAreInSyncAndTheLossFalls) {
  JobOptions options = SmallJob();
  options.ranks = 3;
  options.steps = 8;
  const JobResult result = RunOnThreads(options, ShortText());
  EXPECT_EQ(result.ranks.size(), 3);
  EXPECT_EQ(result.recorders.size(), 3);
  ExpectSameTraining(result, result);
  ASSERT_EQ(result.losses.size(), 8);
  EXPECT_NEAR(result.losses[0], std::log(256), 0.5);
  EXPECT_LT(result.losses[7], result.losses[0] - 0.5);
}

struct Variant {
  int64_t bucket_kb;
  int zero;
  std::string recompute;
  Partition partition = Partition::kFlat;
  bool reduce_scatter = false;
  bool overlap_step = false;
};

TEST(RunJobTest, BucketSizeShardingAndRecomputationChangeNoBit) {
  const JobResult expected = RunOnThreads(SmallJob(), ShortText());
  // The first is the job itself once more.
  for (const Variant& variant :
       {Variant{512, 1, "full"}, Variant{512, 0, "none"},
        Variant{64, 1, "none"}, Variant{64, 0, "full"}, Variant{1, 1, "full"},
        Variant{1, 0, "none"}, Variant{64, 2, "full"},
        Variant{64, 2, "none", kByTensor, false, true},
        Variant{512, 1, "none", kBalanced, true},
        Variant{64, 1, "full", kByTensor, true, true},
        Variant{64, 1, "full", kFlat, false, true}}) {
    JobOptions options = SmallJob();
    options.bucket_kb = variant.bucket_kb;
    options.zero = variant.zero;
    options.recompute = variant.recompute;
    options.partition = variant.partition;
    options.reduce_scatter = variant.reduce_scatter;
    options.overlap_step = variant.overlap_step;
    SCOPED_TRACE(std::to_string(variant.bucket_kb) + " KiB, zero " +
                 std::to_string(variant.zero));
    ExpectSameTraining(expected, RunOnThreads(options, ShortText()));
  }
}

TEST(RunJobTest, AnotherSeedTrainsAnotherModel) {
  JobOptions options = SmallJob();
  const JobResult one = RunOnThreads(options, ShortText());
  options.seed = 2;
  const JobResult two = RunOnThreads(options, ShortText());
  EXPECT_NE(one.ranks[0].parameter_hash, two.ranks[0].parameter_hash);
}

TEST(RunJobTest, TheObserverSeesEachStepOnce) {
  std::vector<double> seen;
  const JobResult result =
      RunOnThreads(SmallJob(), ShortText(), [&](int64_t step, double loss) {
        EXPECT_EQ(step, static_cast<int64_t>(seen.size()));
        seen.push_back(loss);
      });
  EXPECT_EQ(seen, result.losses);
}

TEST(RunJobTest, ASignalEndsItAfterTheStepWithAllThatTheStepsGave) {
  JobOptions options = SmallJob();
  const JobResult whole = RunOnThreads(options, ShortText());
  EXPECT_EQ(whole.stop_signal, 0);
  const InterruptScope scope;
  options.steps = 1000;
  const JobResult result =
      RunOnThreads(options, ShortText(), [](int64_t step, double) {
        if (step == 1) raise(SIGTERM);
      });
  EXPECT_EQ(result.stop_signal, SIGTERM);
  // One more, at whose end the ranks agree.
  EXPECT_EQ(result.losses, whole.losses);
  ExpectSameTraining(whole, result);
  EXPECT_EQ(result.recorders.size(), 2);
  EXPECT_EQ(result.ranks[1].memory, whole.ranks[1].memory);
}

TEST(RunJobTest, RanksApartAreAllToldOfASignal) {
  const InterruptScope scope;
  JobOptions options = SmallJob();
  options.steps = 1000;
  const auto results = RanksApart(2).RunPrograms<JobResult>([&](auto& runner) {
    return RunJob(runner, options, ShortText(), [](int64_t step, double) {
      if (step == 0) raise(SIGINT);
    });
  });
  EXPECT_EQ(results[0].losses.size(), 2);
  for (const JobResult& result : results) {
    EXPECT_EQ(result.stop_signal, SIGINT);
  }
}

TEST(RunJobTest, ASignalInTheLastStepCutsNothingShort) {
  const InterruptScope scope;
  const JobResult result =
      RunOnThreads(SmallJob(), ShortText(), [](int64_t step, double) {
        if (step == 1) raise(SIGINT);
      });
  EXPECT_EQ(result.losses.size(), 3);
  EXPECT_EQ(result.stop_signal, 0);
}

TEST(RunJobTest, TheSnapshotIsOfItsStep) {
  JobOptions options = SmallJob();
  options.snapshot_steps = 2;
  const JobResult longer = RunOnThreads(options, ShortText());
  options.steps = 2;
  const JobResult shorter = RunOnThreads(options, ShortText());
  EXPECT_TRUE(EqualBits(longer.snapshot, shorter.snapshot));
  EXPECT_EQ(HashOf(shorter.snapshot), shorter.ranks[0].parameter_hash);
  EXPECT_NE(HashOf(longer.snapshot), longer.ranks[0].parameter_hash);
}

TEST(RunJobTest, EveryKindOfDataParallelismGivesTheSameParameters) {
  JobOptions options = SmallJob();
  const JobResult bucketed = RunOnThreads(options, ShortText());
  for (const char* ddp : {"simple", "async"}) {
    options.ddp = ddp;
    const JobResult result = RunOnThreads(options, ShortText());
    ExpectSameTraining(bucketed, result);
    EXPECT_EQ(result.ranks[0].gradient_bytes,
              4 * ParameterCount({.context = 16}))
        << "without padding";
  }
}

TEST(RunJobTest, BytesAreCountedWholeAndSharded) {
  const int64_t parameters = ParameterCount({.context = 16});
  JobOptions options = SmallJob();
  for (const int zero : {0, 1, 2}) {
    options.zero = zero;
    int64_t state_bytes = 0, gradient_bytes = 0;
    for (const RankSummary& rank : RunOnThreads(options, ShortText()).ranks) {
      EXPECT_EQ(rank.parameter_bytes, 4 * parameters);
      gradient_bytes += rank.gradient_bytes;
      state_bytes += rank.state_bytes;
    }
    EXPECT_EQ(state_bytes, 8 * parameters * (zero == 0 ? 2 : 1));
    EXPECT_EQ(gradient_bytes, 4 * parameters * (zero == 2 ? 1 : 2));
  }
}

TEST(RunJobTest, InF64EveryNumberIsADouble) {
  JobOptions options = SmallJob();
  options.steps = options.snapshot_steps = 1;
  options.precision = Precision::kF64;
  const JobResult result = RunOnThreads(options, ShortText());
  for (const at::Tensor& p : result.snapshot) {
    EXPECT_EQ(p.scalar_type(), at::kDouble);
  }
  EXPECT_EQ(result.ranks[0].parameter_bytes,
            8 * ParameterCount({.context = 16}));
}

TEST(RunJobTest, RanksApartTrainTheSameAndOnlyTheFirstHasTheResult) {
  JobOptions options = SmallJob();
  options.ranks = 3;
  options.snapshot_steps = 2;
  const JobResult expected = RunOnThreads(options, ShortText());
  const auto results = RanksApart(3).RunPrograms<JobResult>(
      [&](auto& runner) { return RunJob(runner, options, ShortText()); });
  ExpectSameTraining(expected, results[0]);
  EXPECT_EQ(results[0].ranks.size(), 3);
  EXPECT_EQ(results[0].recorders.size(), 3);
  EXPECT_TRUE(EqualBits(results[0].snapshot, expected.snapshot));
  for (size_t r = 1; r < 3; ++r) {
    EXPECT_TRUE(results[r].losses.empty());
    EXPECT_TRUE(results[r].ranks.empty());
    EXPECT_TRUE(results[r].recorders.empty());
    EXPECT_TRUE(results[r].snapshot.empty());
  }
}

TEST(MakeModelTest, RanksStartFromDifferentWeights) {
  const auto zero = MakeModel(SmallJob(), 16, 0);
  const auto one = MakeModel(SmallJob(), 16, 1);
  EXPECT_FALSE(EqualBits(zero->parameters(), one->parameters()));
  EXPECT_TRUE(EqualBits(zero->parameters(),
                        MakeModel(SmallJob(), 16, 0)->parameters()));
}

TEST(LossTest, TheWholeBatchIsTheRanksBatchesTogether) {
  const JobOptions options = SmallJob();
  const ByteDataset data = ShortText();
  const auto model = MakeModel(options, 16, 0);
  const double whole = WholeLoss(options, data, *model, 3).item<double>();
  const double first = LocalLoss(options, data, *model, 3, 0).item<double>();
  const double second = LocalLoss(options, data, *model, 3, 1).item<double>();
  EXPECT_NE(first, second);
  EXPECT_NEAR(whole, (first + second) / 2, 1e-5);
}

// One option that no job can have, and what the refusal must say.
struct Impossible {
  std::string name;
  std::function<void(JobOptions&)> set;
  std::string value;
};

TEST(ValidateTest, ImpossibleOptionsAreRefusedEachInOneLineThatNamesThem) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<Impossible> cases{
      {"ranks", [](auto& o) { o.ranks = 0; }, "0"},
      {"ranks", [](auto& o) { o.ranks = -1; }, "-1"},
      {"ranks", [](auto& o) { o.ranks = 10'000'000; }, "10000000"},
      {"steps", [](auto& o) { o.steps = 0; }, "0"},
      {"batch", [](auto& o) { o.batch = 0; }, "0"},
      {"batch", [](auto& o) { o.batch = 1 << 20; }, "1048576"},
      {"bucket-kb", [](auto& o) { o.bucket_kb = 0; }, "0"},
      {"bucket-kb", [](auto& o) { o.bucket_kb = int64_t{1} << 60; },
       "1152921504606846976"},
      {"ddp", [](auto& o) { o.ddp = "rings"; }, "'rings'"},
      {"zero", [](auto& o) { o.zero = 3; }, "3"},
      {"zero", [](auto& o) { o.zero = -1; }, "-1"},
      {"lr", [](auto& o) { o.lr = 0; }, "0"},
      {"lr", [](auto& o) { o.lr = -1; }, "-1"},
      {"lr", [nan](auto& o) { o.lr = nan; }, "nan"},
      {"lr", [infinity](auto& o) { o.lr = infinity; }, "inf"},
  };
  for (const Impossible& impossible : cases) {
    JobOptions options = SmallJob();
    impossible.set(options);
    try {
      RunOnThreads(options, ShortText());
      ADD_FAILURE() << impossible.name << " " << impossible.value;
    } catch (const InvalidArgument& e) {
      EXPECT_THAT(e.what(),
                  AllOf(HasSubstr(impossible.name + " is " + impossible.value),
                        HasSubstr("expected")));
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(ValidateTest, OptionsThatDoNotGoTogetherAreRefusedWithWhatWould) {
  const std::vector<Impossible> cases{
      {"a partition", [](auto& o) { o.zero = 0, o.partition = kByTensor; },
       "zero 1 or 2"},
      {"overlap-step", [](auto& o) { o.zero = 0, o.overlap_step = true; },
       "zero 1 or 2"},
      {"reduce-scatter", [](auto& o) { o.zero = 0, o.reduce_scatter = true; },
       "zero 1 or 2"},
      {"ddp simple", [](auto& o) { o.zero = 2, o.ddp = "simple"; },
       "ddp bucketed"},
      {"ddp async", [](auto& o) { o.overlap_step = true, o.ddp = "async"; },
       "ddp bucketed"},
      {"ddp simple", [](auto& o) { o.reduce_scatter = true, o.ddp = "simple"; },
       "ddp bucketed"}};
  for (const Impossible& impossible : cases) {
    JobOptions options = SmallJob();
    impossible.set(options);
    try {
      Validate(options);
      ADD_FAILURE() << impossible.name;
    } catch (const InvalidArgument& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr(impossible.name),
                                  HasSubstr("expected " + impossible.value)));
    }
  }
}

}  // namespace
}  // namespace trainsys
