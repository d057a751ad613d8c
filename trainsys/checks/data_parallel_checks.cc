// Checks 1, 2 and 4: training on several ranks equals one rank.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "trainsys/checks/checks.h"
#include "trainsys/checks/diagnosis.h"
#include "trainsys/checks/parts.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/checks/training_run.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/proof/references.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/zero/flat_optimizer.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::RankRunner;

constexpr int64_t kBucketBytes = 32 << 10;
constexpr double kSgdLr = 0.1;
constexpr AdamWOptions kAdamW{
    .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

using Parameters = std::vector<at::Tensor>;
using MakeModel = std::function<std::shared_ptr<SmallModel>(uint64_t seed)>;

// How a check trains, on ranks and as each of the references.
struct Recipe {
  std::string name;
  int ranks = 2;
  TrainingParts parts;
  MakeModel plain_model;
  std::function<std::unique_ptr<Optimizer>(Parameters)> unsharded;
  std::function<std::unique_ptr<Optimizer>(Parameters)> libtorch;
  TrainingLimits limits;
};

References MakeReferences(const Recipe& recipe) {
  const Samples samples = MakeSamples(kDataSeed);
  const auto model = recipe.plain_model(kModelSeed);
  const auto optimizer = recipe.unsharded(model->parameters());
  Trajectory a =
      TrainStepwise(*model, *optimizer, samples, recipe.ranks, kCheckSteps);
  const auto whole_model = recipe.plain_model(kModelSeed);
  const auto whole_optimizer = recipe.libtorch(whole_model->parameters());
  TrainOnWholeBatch(*whole_optimizer, kCheckSteps,
                    [&](int64_t) { return LossOf(*whole_model, samples); });
  return {std::move(a), Snapshot(whole_model->parameters())};
}

void DescribeNumbers(const Recipe& recipe, const std::vector<RankFacts>& ranks,
                     CheckResult& check) {
  bool is_equal = true;
  double difference = 0;
  for (const RankFacts& rank : ranks) {
    is_equal = is_equal && rank.is_equal;
    difference = std::max(difference, rank.difference);
  }
  check.lines.push_back(fmt::format(
      "differs from plain libtorch on the whole batch by {:.1e} (max {:.0e})",
      difference, recipe.limits.tolerance));
  check.lines.push_back(is_equal ? "equal bits to one rank in micro-steps"
                                 : "other bits than one rank in micro-steps");
  check.figures["difference"] = difference;
  check.figures["allowed_difference"] = recipe.limits.tolerance;
  check.figures["has_equal_bits"] = is_equal;
}

void DescribeOverlap(const std::vector<RankFacts>& ranks, CheckResult& check) {
  const int64_t num_buckets = ranks[0].traffic.back().posted_inside;
  check.lines.push_back(
      fmt::format("all {} buckets posted inside backward, waited for after it",
                  num_buckets));
  check.figures["buckets"] = num_buckets;
}

void DescribeState(const TrainingLimits& limits,
                   const std::vector<RankFacts>& ranks, CheckResult& check) {
  int64_t largest = 0, sum = 0;
  for (const RankFacts& rank : ranks) {
    largest = std::max(largest, rank.state_bytes);
    sum += rank.state_bytes;
  }
  check.lines.push_back(
      fmt::format("optimizer state: {} bytes a rank, {} in all, {} unsharded",
                  largest, sum, StateBytes(limits)));
  check.figures["state_bytes_of_largest"] = largest;
  check.figures["state_bytes_of_all"] = sum;
  check.figures["state_bytes_unsharded"] = StateBytes(limits);
}

CheckResult AsResult(const Recipe& recipe, const TrainingLimits& limits,
                     const AllRanks& all) {
  CheckResult check{recipe.name, false, {}, {}};
  std::optional<Finding> found = Diagnose(limits, all.facts);
  for (const std::string& violation : all.order_violations) {
    if (found || !limits.has_overlap || violation.empty()) continue;
    found = Finding{violation, "each bucket in order while backward runs"};
  }
  check.has_passed = !found;
  DescribeNumbers(recipe, all.facts, check);
  if (limits.has_overlap) DescribeOverlap(all.facts, check);
  if (limits.has_sharding) DescribeState(limits, all.facts, check);
  if (found) check.lines = {found->seen, "expected: " + found->expected};
  return check;
}

CheckResult CheckTraining(const Recipe& recipe, const CheckOptions& options,
                          RankRunner& runner) {
  // Before other threads use tensors: each rank has a ledger.
  ProcessLedger();
  // Once for all ranks of this process.
  const References references = MakeReferences(recipe);
  AllRanks all;  // filled by rank 0 alone: the others may be elsewhere
  runner.Run({.ranks = recipe.ranks, .timeout = options.timeout},
             [&](Communicator& comm) {
               AllRanks gathered =
                   TrainRank(recipe.parts, references, options, comm);
               if (comm.rank() == 0) all = std::move(gathered);
             });
  if (!runner.HasFirstRank()) return {recipe.name, true, {}, {}};
  TrainingLimits limits = recipe.limits;
  limits.needs_equal_bits = options.has_rank_order && options.mine == nullptr;
  limits.num_parameters = static_cast<int64_t>(references.b.size());
  for (const at::Tensor& p : references.b) {
    limits.num_elems += p.numel();
    limits.largest_elems = std::max(limits.largest_elems, p.numel());
  }
  return AsResult(recipe, limits, all);
}

Recipe AdamWRecipe(const Parts& ddp, const Parts& zero1, int ranks,
                   const AdamWOptions& adamw, MakeModel model) {
  Recipe recipe;
  recipe.ranks = ranks;
  recipe.plain_model = recipe.parts.model = std::move(model);
  recipe.parts.ddp = [ddp](SmallModel& module, Communicator& comm) {
    return ddp.ddp(module, comm, kBucketBytes);
  };
  recipe.parts.optimizer = [zero1, adamw](Parameters p, Communicator& comm) {
    return zero1.zero1(std::move(p), comm, adamw);
  };
  recipe.unsharded = [adamw](Parameters p) {
    return std::make_unique<FlatOptimizer>(std::move(p), adamw);
  };
  recipe.libtorch = [adamw](Parameters p) {
    return LibtorchAdamW(std::move(p), adamw);
  };
  recipe.limits = {
      .tolerance = 1e-4, .bucket_bytes = kBucketBytes, .has_sharding = true};
  return recipe;
}

Recipe SgdRecipe(const Parts& parts) {
  const auto sgd = [](Parameters p) {
    return LibtorchSGD(std::move(p), kSgdLr);
  };
  Recipe recipe =
      AdamWRecipe(parts, parts, /*ranks=*/2, AdamWOptions(), MakeMlp);
  recipe.parts.optimizer = [sgd](Parameters p, Communicator&) {
    return sgd(std::move(p));
  };
  recipe.unsharded = recipe.libtorch = sgd;
  recipe.limits = {
      .tolerance = 1e-5, .bucket_bytes = kBucketBytes, .has_overlap = true};
  return recipe;
}

Parts PartsOf(const CheckOptions& options) {
  return options.mine != nullptr ? *options.mine : OurParts();
}

}  // namespace

CheckResult CheckBucketedDDP(const CheckOptions& options, RankRunner& runner) {
  Recipe recipe = SgdRecipe(PartsOf(options));
  recipe.name = kChecks[0].name;
  return CheckTraining(recipe, options, runner);
}

CheckResult CheckZeRO1(const CheckOptions& options, RankRunner& runner) {
  const Parts parts = PartsOf(options);
  Recipe recipe = AdamWRecipe(OurParts(), parts, kCheckRanks, kAdamW, MakeMlp);
  recipe.name = kChecks[1].name;
  CheckResult check = CheckTraining(recipe, options, runner);
  // Run in any case: where ranks are processes only rank 0's knows the result
  // of the first. A larger eps: the seeds were tried with the other model.
  AdamWOptions adamw = kAdamW;
  adamw.eps = 1e-5;
  Recipe odd = AdamWRecipe(OurParts(), parts, kCheckRanks, adamw, MakeOddMlp);
  odd.name = recipe.name;
  const CheckResult odd_check = CheckTraining(odd, options, runner);
  if (!check.has_passed || !runner.HasFirstRank()) return check;
  if (!odd_check.has_passed) return odd_check;
  check.lines.push_back("2571 elements, not a multiple of 4, train as well");
  return check;
}

CheckResult CheckAllThree(const CheckOptions& options, RankRunner& runner) {
  const Parts parts = PartsOf(options);
  Recipe recipe = AdamWRecipe(
      parts, parts, /*ranks=*/2, kAdamW,
      [](uint64_t seed) { return MakeResidualModel(seed, Plain()); });
  recipe.name = kChecks[3].name;
  recipe.parts.model = [parts](uint64_t seed) {
    return MakeResidualModel(seed, parts.checkpoint);
  };
  recipe.limits.has_overlap = true;
  return CheckTraining(recipe, options, runner);
}

}  // namespace trainsys
