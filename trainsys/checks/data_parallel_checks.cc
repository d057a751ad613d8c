// Checks 1, 2 and 4: training on several ranks equals one rank.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "collectives/c10d/device_scope.h"
#include "collectives/gather.h"
#include "trainsys/checks/checks.h"
#include "trainsys/checks/faulty_communicator.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/proof/references.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/timeline/overlap.h"
#include "trainsys/zero/flat_optimizer.h"
#include "trainsys/zero/zero_optimizer.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::PhaseRecord;
using collectives::PhaseScope;
using collectives::RankRunner;

constexpr int64_t kSteps = 3;
constexpr int64_t kBucketBytes = 32 << 10;
// AdamW's first step is lr * g / (|g| + eps): where a gradient is as small as
// eps, rounding noise becomes a visible step of up to lr, in anybody's f32. Of
// the seeds tried, these keep all gradients clear of that.
constexpr uint64_t kModelSeed = 320;  // plus the rank: they differ at first
constexpr uint64_t kDataSeed = 13;
constexpr double kSgdLr = 0.1;
constexpr AdamWOptions kAdamW{
    .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

using Parameters = std::vector<at::Tensor>;

enum class Also { kOverlap, kState };  // what is checked beside numbers

// How a check trains, on ranks and as each of the references.
struct Recipe {
  std::string name;
  Also also = Also::kState;
  int ranks = 2;
  double tolerance = 0;  // against the whole batch, absolute
  std::function<std::shared_ptr<SmallModel>(uint64_t seed)> model;
  std::function<std::shared_ptr<SmallModel>(uint64_t seed)> plain_model;
  std::function<std::unique_ptr<Optimizer>(Parameters, Communicator&)> sharded;
  std::function<std::unique_ptr<Optimizer>(Parameters)> unsharded;
  std::function<std::unique_ptr<Optimizer>(Parameters)> libtorch;
};

// What one rank ended with, as all ranks hear of it.
struct RankFigures {
  int64_t is_equal = 0;   // to reference A, bit for bit
  double difference = 0;  // from reference B
  int64_t state_bytes = 0;
  int64_t num_buckets = 0;
};

struct References {
  Parameters a;
  Parameters b;
};

// Every rank's, in rank order.
struct AllRanks {
  std::vector<RankFigures> figures;
  std::vector<std::string> overlap_violations;
};

// An accelerator computes on after backward() has returned: some bucket must be
// complete before that has ended too.
std::string DeviceOverlapViolation(const collectives::Recorder& recorder,
                                   const PhaseRecord& backward) {
  for (const collectives::Record& record : recorder.Records()) {
    if (IsBucket(record) && record.done_ns > backward.begin_ns &&
        record.done_ns < backward.end_ns) {
      return "";
    }
  }
  return "no bucket was complete before the device had done backward";
}

// Result: the first overlap violation, or nothing.
std::string RunSteps(SmallModel& model, const Samples& samples,
                     BucketedDDP& ddp, Optimizer& optimizer, int device,
                     Communicator& comm) {
  std::string violation;
  for (int64_t step = 0; step < kSteps; ++step) {
    optimizer.ZeroGrad();
    ddp.BeginForward();
    const at::Tensor loss = LossOf(model, samples);
    {
      const PhaseScope backward(comm.recorder(), "backward", step);
      loss.backward();
      collectives::AwaitDevice(device);
    }
    ddp.FinishGradientSync();
    optimizer.Step();
    const PhaseRecord backward = *FindPhase(comm.recorder(), "backward", step);
    if (violation.empty()) {
      violation = OverlapViolation(comm.recorder(), backward, ddp.buckets(),
                                   ddp.ready_ns());
    }
    // The first step's kernels are still being loaded.
    if (violation.empty() && device != collectives::kHostMemory && step > 0) {
      violation = DeviceOverlapViolation(comm.recorder(), backward);
    }
  }
  return violation;
}

// Trains one rank and compares it with the references where it runs.
AllRanks TrainRank(const Recipe& recipe, const References& references,
                   const CheckOptions& options, Communicator& real) {
  FaultyCommunicator comm(real, options.fault);
  const Samples samples =
      MakeSamples(kDataSeed).Part(comm.rank(), comm.ranks()).On(options.device);
  const auto model = recipe.model(kModelSeed + comm.rank());
  MoveTo(options.device, *model);
  BucketedDDP ddp(*model, comm, {.bucket_bytes = kBucketBytes});
  const auto optimizer = recipe.sharded(ddp.parameters(), comm);
  const std::string violation =
      RunSteps(*model, samples, ddp, *optimizer, options.device, comm);
  const RankFigures mine{EqualBits(ddp.parameters(), references.a),
                         MaxDifference(ddp.parameters(), references.b),
                         optimizer->StateBytes(),
                         static_cast<int64_t>(ddp.buckets().size())};
  return {Gather(real, mine, "figures"),
          GatherText(real, violation, "overlap")};
}

Parameters ReferenceA(const Recipe& recipe) {
  const auto model = recipe.plain_model(kModelSeed);
  const auto optimizer = recipe.unsharded(model->parameters());
  const Samples samples = MakeSamples(kDataSeed);
  TrainInMicroSteps(model->parameters(), *optimizer, kSteps, recipe.ranks,
                    [&](int64_t, int rank) {
                      return LossOf(*model, samples.Part(rank, recipe.ranks));
                    });
  return Snapshot(model->parameters());
}

Parameters ReferenceB(const Recipe& recipe) {
  const auto model = recipe.plain_model(kModelSeed);
  const auto optimizer = recipe.libtorch(model->parameters());
  const Samples samples = MakeSamples(kDataSeed);
  TrainOnWholeBatch(*optimizer, kSteps,
                    [&](int64_t) { return LossOf(*model, samples); });
  return Snapshot(model->parameters());
}

// What the ranks ended with against both references.
void CheckNumbers(const Recipe& recipe, bool has_rank_order,
                  const std::vector<RankFigures>& ranks, CheckResult& check) {
  bool is_equal = true;
  double difference = 0;
  for (const RankFigures& rank : ranks) {
    is_equal = is_equal && rank.is_equal;
    difference = std::max(difference, rank.difference);
  }
  check.has_passed = check.has_passed && (is_equal || !has_rank_order) &&
                     difference <= recipe.tolerance;
  check.figures += fmt::format(
      "differs from plain libtorch on the whole batch by {:.1e} (allowed "
      "{:.0e}), {} bits to one rank in micro-steps",
      difference, recipe.tolerance, is_equal ? "equal" : "DIFFERENT");
}

void CheckOverlap(const AllRanks& all, CheckResult& check) {
  std::string violation;
  for (const std::string& of_rank : all.overlap_violations) {
    if (violation.empty()) violation = of_rank;
  }
  check.has_passed = check.has_passed && violation.empty();
  check.figures +=
      violation.empty()
          ? fmt::format("; all {} buckets posted in order inside backward",
                        all.figures[0].num_buckets)
          : "; " + violation;
}

// `full`: bytes of the optimizer's state on one rank alone.
void CheckState(const std::vector<RankFigures>& ranks, int64_t full,
                CheckResult& check) {
  const auto n = static_cast<int64_t>(ranks.size());
  int64_t largest = 0, sum = 0;
  for (const RankFigures& rank : ranks) {
    largest = std::max(largest, rank.state_bytes);
    sum += rank.state_bytes;
  }
  check.has_passed =
      check.has_passed &&
      static_cast<double>(largest) <=
          1.1 * static_cast<double>(full) / n + 4096 &&
      static_cast<double>(sum) >= 0.9 * static_cast<double>(full);
  check.figures += fmt::format(
      "; optimizer state at most {} bytes a rank, {} in all, {} unsharded",
      largest, sum, full);
}

Recipe AdamWRecipe(const std::string& name, int ranks) {
  Recipe recipe;
  recipe.name = name;
  recipe.ranks = ranks;
  recipe.tolerance = 1e-4;
  recipe.model = recipe.plain_model = MakeMlp;
  recipe.sharded = [](Parameters p, Communicator& comm) {
    return std::make_unique<ZeROOptimizer>(std::move(p), comm, kAdamW);
  };
  recipe.unsharded = [](Parameters p) {
    return std::make_unique<FlatOptimizer>(std::move(p), kAdamW);
  };
  recipe.libtorch = [](Parameters p) {
    return LibtorchAdamW(std::move(p), kAdamW);
  };
  return recipe;
}

Recipe SgdRecipe() {
  const auto sgd = [](Parameters p) {
    return LibtorchSGD(std::move(p), kSgdLr);
  };
  Recipe recipe;
  recipe.name = "BucketedDDP";
  recipe.also = Also::kOverlap;
  recipe.ranks = 2;
  recipe.tolerance = 1e-5;
  recipe.model = recipe.plain_model = MakeMlp;
  recipe.sharded = [sgd](Parameters p, Communicator&) {
    return sgd(std::move(p));
  };
  recipe.unsharded = recipe.libtorch = sgd;
  return recipe;
}

int64_t UnshardedStateBytes(const Parameters& parameters) {
  int64_t bytes = 0;
  for (const at::Tensor& p : parameters) bytes += 8 * p.numel();
  return bytes;
}

CheckResult CheckTraining(const Recipe& recipe, const CheckOptions& options,
                          RankRunner& runner) {
  CheckResult check{fmt::format("{}, {} ranks", recipe.name, recipe.ranks),
                    true, ""};
  // Once for all ranks of this process.
  const References references{ReferenceA(recipe), ReferenceB(recipe)};
  AllRanks all;  // filled by rank 0 alone: the others may be elsewhere
  runner.Run({.ranks = recipe.ranks, .timeout = std::chrono::seconds(60)},
             [&](Communicator& comm) {
               AllRanks gathered = TrainRank(recipe, references, options, comm);
               if (comm.rank() == 0) all = std::move(gathered);
             });
  if (!runner.HasFirstRank()) return check;
  CheckNumbers(recipe, options.has_rank_order, all.figures, check);
  if (recipe.also == Also::kOverlap) {
    CheckOverlap(all, check);
  } else {
    CheckState(all.figures, UnshardedStateBytes(references.a), check);
  }
  return check;
}

}  // namespace

CheckResult CheckBucketedDDP(const CheckOptions& options, RankRunner& runner) {
  return CheckTraining(SgdRecipe(), options, runner);
}

CheckResult CheckZeRO1(const CheckOptions& options, RankRunner& runner) {
  return CheckTraining(AdamWRecipe("ZeRO-1", kCheckRanks), options, runner);
}

CheckResult CheckAllThree(const CheckOptions& options, RankRunner& runner) {
  Recipe recipe = AdamWRecipe("all three together", 2);
  recipe.model = [](uint64_t seed) {
    return MakeResidualModel(seed, Checkpointed());
  };
  recipe.plain_model = [](uint64_t seed) {
    return MakeResidualModel(seed, Plain());
  };
  return CheckTraining(recipe, options, runner);
}

}  // namespace trainsys
