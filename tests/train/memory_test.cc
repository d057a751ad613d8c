// The budget against the ledger, for everything that can run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/backend/backend.h"
#include "trainsys/budget/this_libtorch.h"
#include "trainsys/budget/transformer_activations.h"
#include "trainsys/data/stories.h"
#include "trainsys/train/job.h"

namespace trainsys {
namespace {

using enum MemoryCategory;
using ::testing::ElementsAre;

struct Size {
  std::string name;
  TransformerConfig model;
  int64_t context;
};

// Widths that need padding, odd lengths; and some that need none.
const std::vector<Size>& Sizes() {
  static const std::vector<Size> sizes = {
      {"small", {.dim = 16, .layers = 2, .heads = 2, .ffn = 24}, 8},
      {"uneven",
       {.vocab = 259, .dim = 20, .layers = 3, .heads = 2, .ffn = 30},
       15},
      {"even", {.dim = 64, .layers = 4, .heads = 4, .ffn = 96}, 32}};
  return sizes;
}

JobOptions Options(const Size& size, int ranks) {
  JobOptions options;
  options.model = size.model;
  options.ranks = ranks;
  options.steps = 2;
  options.batch = 2;
  options.bucket_kb = 8;
  options.recompute = "none";
  options.snapshot_steps = 1;  // rank 0 keeps something aside meanwhile
  return options;
}

JobResult TrainJob(const JobOptions& options, int64_t context) {
  const auto data =
      ByteDataset::FromBytes(MakeStories(/*seed=*/1, 20'000), context);
  return RunJob(collectives::RunnerHere(), options, data);
}

void ExpectAsBudgeted(const JobOptions& options, int64_t context) {
  SCOPED_TRACE(std::to_string(options.ranks) + " ranks, zero " +
               std::to_string(options.zero) + ", " + options.recompute +
               ", budget " + std::to_string(options.activation_budget_bytes));
  const JobResult result = TrainJob(options, context);
  ASSERT_EQ(result.ranks.size(), static_cast<size_t>(options.ranks));
  for (int r = 0; r < options.ranks; ++r) {
    const StepMemory budget = BudgetOf(options, context, r);
    const StepMemory& ledger = result.ranks[static_cast<size_t>(r)].memory;
    for (StepPoint point : kStepPoints) {
      for (MemoryCategory c : kMemoryCategories) {
        EXPECT_EQ(ledger[point][c], budget[point][c])
            << "rank " << r << " " << Name(point) << ": " << Name(c);
      }
    }
  }
}

class AgreementTest : public testing::TestWithParam<Size> {
 protected:
  int64_t context() const { return GetParam().context; }
};

INSTANTIATE_TEST_SUITE_P(Models, AgreementTest, testing::ValuesIn(Sizes()),
                         [](const auto& info) { return info.param.name; });

TEST_P(AgreementTest, TheLedgerIsTheBudgetForEveryStageAndPolicy) {
  for (int ranks : {1, 2, 3, 4}) {
    for (int zero : {0, 1, 2}) {
      for (const char* recompute : {"none", "full", "every-2", "selective"}) {
        JobOptions options = Options(GetParam(), ranks);
        options.zero = zero;
        options.recompute = recompute;
        ExpectAsBudgeted(options, context());
      }
    }
  }
}

TEST_P(AgreementTest, TheLedgerIsTheBudgetInF64AndForEveryBucketSize) {
  for (int64_t bucket_kb : {1, 64, 100'000}) {
    for (const char* recompute : {"none", "full", "every-3", "selective"}) {
      JobOptions options = Options(GetParam(), /*ranks=*/3);
      options.precision = Precision::kF64;
      options.bucket_kb = bucket_kb;
      options.zero = bucket_kb == 64 ? 0 : 1;
      options.recompute = recompute;
      ExpectAsBudgeted(options, context());
    }
  }
}

TEST_P(AgreementTest, TheLedgerIsTheBudgetForEveryWayToCutAndToStep) {
  for (int zero : {1, 2}) {
    for (Partition partition :
         {Partition::kFlat, Partition::kByTensor, Partition::kBalanced}) {
      for (bool overlap_step : {false, true}) {
        JobOptions options = Options(GetParam(), /*ranks=*/3);
        options.zero = zero;
        options.partition = partition;
        options.reduce_scatter = !overlap_step;
        options.overlap_step = overlap_step;
        ExpectAsBudgeted(options, context());
      }
    }
  }
}

// From what full recomputation needs to what none needs: the peak of the
// ledger's activations is the plan's, and within what was asked for.
TEST_P(AgreementTest, ActivationsStayWithinTheirBudgetThroughoutTheStep) {
  JobOptions options = Options(GetParam(), /*ranks=*/1);
  TransformerConfig config = options.model;
  config.context = context();
  const ForwardShape shape{options.batch, context(), 4, kThisLibtorch};
  const auto peak_of = [&](const RecomputePlan& plan) {
    return PeakSavedBytes(config, shape, plan);
  };
  const int64_t least = peak_of(PlanOfPolicy("full", config.layers));
  const int64_t most = peak_of(PlanOfPolicy("none", config.layers));
  ASSERT_LT(least, most);
  for (int part = 0; part <= 4; ++part) {
    options.activation_budget_bytes = least + (most - least) * part / 4;
    ExpectAsBudgeted(options, context());
    const MemoryPeak peak = TrainJob(options, context()).ranks[0].peak;
    EXPECT_EQ(peak.of_category[kActivation],
              peak_of(PlanOf(options, context())));
    EXPECT_LE(peak.of_category[kActivation], options.activation_budget_bytes);
  }
  options.activation_budget_bytes = 1;
  EXPECT_THROW(PlanOf(options, context()), collectives::InvalidArgument);
}

// Gradients lie in their buckets only, also one that is larger than a bucket:
// nothing of theirs is left beside them.
TEST(GradientMemoryTest, GradientsAreHeldOnceAndNoCopyOutlivesBackward) {
  const Size& size = Sizes()[2];
  JobOptions options = Options(size, /*ranks=*/2);
  options.bucket_kb = 1;
  const JobResult result = TrainJob(options, size.context);
  for (const RankSummary& rank : result.ranks) {
    const MemorySplit& split = rank.memory[StepPoint::kAfterBackward];
    EXPECT_EQ(split[kGradient], rank.parameter_bytes);
    EXPECT_EQ(split[kTemporary], 4);  // the loss
  }
}

TEST(StepMemoryTest, NothingGrowsFromStepToStep) {
  const Size& size = Sizes()[1];
  JobOptions options = Options(size, /*ranks=*/2);
  options.recompute = "full";
  const JobResult few = TrainJob(options, size.context);
  options.steps = 30;
  const JobResult many = TrainJob(options, size.context);
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(few.ranks[r].memory, many.ranks[r].memory);
    EXPECT_EQ(few.ranks[r].peak.bytes, many.ranks[r].peak.bytes);
    EXPECT_EQ(few.ranks[r].peak.split, many.ranks[r].peak.split);
  }
}

TEST(StepMemoryTest, ThePeakIsTheSumOfItsCategoriesAndAtLeastEveryPoint) {
  const Size& size = Sizes()[2];
  for (const RankSummary& rank :
       TrainJob(Options(size, /*ranks=*/3), size.context).ranks) {
    EXPECT_EQ(rank.peak.bytes, rank.peak.split.Total());
    for (const MemorySplit& split : rank.memory.at) {
      EXPECT_GE(rank.peak.bytes, split.Total());
    }
  }
}

}  // namespace
}  // namespace trainsys
