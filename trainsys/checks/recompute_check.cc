// Check 3: recomputation keeps the inputs only and changes no gradient.
#include <ATen/ops/randn.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/checks/checks.h"
#include "trainsys/checks/diagnosis.h"
#include "trainsys/checks/parts.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/random/rank_generator.h"
#include "trainsys/recompute/checkpoint.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

constexpr double kTolerance = 1e-5;
constexpr double kDropout = 0.1;
constexpr uint64_t kSeed = 3;

// How often blocks ran.
struct Runs {
  int64_t all = 0;
};

struct Measured {
  at::Tensor output;
  std::vector<at::Tensor> gradients;  // of every parameter, then of x
  std::vector<int64_t> num_accumulated;
  at::Tensor generator;  // its state after backward
  int64_t raw_bytes = 0;
  int64_t distinct_bytes = 0;
  int64_t backward_runs = 0;
};

BlockRunner Counting(BlockRunner run_block, Runs& runs) {
  return [run_block = std::move(run_block), &runs](const auto& fn,
                                                   const at::Tensor& x) {
    return run_block(
        [fn, &runs](const at::Tensor& t) {
          ++runs.all;
          return fn(t);
        },
        x);
  };
}

// `runs`: of the model's blocks.
Measured Measure(SmallModel& model, const Runs& runs) {
  const RankGeneratorScope scope(MakeRankGenerator(/*seed=*/5, 0, 0));
  const at::Tensor x = at::randn({64, 256}).requires_grad_(true);  // [B, F]
  Measured measured;
  const std::vector<at::Tensor> parameters = model.parameters();
  measured.num_accumulated.resize(parameters.size());
  std::vector<GradientHook> hooks;
  for (size_t i = 0; i < parameters.size(); ++i) {
    hooks.emplace_back(parameters[i],
                       [&measured, i] { ++measured.num_accumulated[i]; });
  }
  at::Tensor loss;
  {
    const SavedBytesScope saved(parameters);
    measured.output = model.Forward(x);
    loss = measured.output.square().mean();
    measured.raw_bytes = saved.raw_bytes();
    measured.distinct_bytes = saved.distinct_bytes();
  }
  const int64_t forward_runs = runs.all;
  // Else nobody has a gradient, which is told in better words than libtorch's.
  if (loss.requires_grad()) loss.backward();
  measured.backward_runs = runs.all - forward_runs;
  for (const at::Tensor& p : parameters) measured.gradients.push_back(p.grad());
  measured.gradients.push_back(x.grad());
  measured.generator = CurrentGenerator().get_state();
  return measured;
}

// Keeps what it must not keep: the parameters, as if they were inputs.
BlockRunner KeepingParameters(const std::shared_ptr<SmallModel>& model) {
  return [&model](const auto& fn, const at::Tensor& x) {
    std::vector<at::Tensor> inputs{x};
    for (const at::Tensor& p : model->parameters()) inputs.push_back(p);
    return Checkpoint(
        [fn](const std::vector<at::Tensor>& all) {
          return std::vector<at::Tensor>{fn(all[0])};
        },
        inputs)[0];
  };
}

// The model without recomputation, and with.
struct Both {
  Measured plain;
  Measured recomputed;

  bool HasAllGradients() const {
    return std::ranges::all_of(recomputed.gradients,
                               [](const at::Tensor& g) { return g.defined(); });
  }
  double Difference() const {
    return MaxDifference(recomputed.gradients, plain.gradients);
  }
  bool IsEqual() const {
    return EqualBits(recomputed.gradients, plain.gradients);
  }
};

Both MeasureBoth(const CheckOptions& options, double dropout) {
  Runs runs, plain_runs;
  std::shared_ptr<SmallModel> model;
  BlockRunner run_block =
      options.mine != nullptr ? options.mine->checkpoint : Checkpointed();
  if (options.fault == Fault::kParamsSaved)
    run_block = KeepingParameters(model);
  model = MakeWideBlocks(kSeed, Counting(std::move(run_block), runs), dropout);
  const auto plain_model = MakeWideBlocks(kSeed, Plain(), dropout);
  return {Measure(*plain_model, plain_runs), Measure(*model, runs)};
}

RecomputeFacts FactsOf(const Both& both) {
  const Measured& again = both.recomputed;
  RecomputeFacts facts;
  facts.num_segments = kWideBlocks;
  facts.num_parameters = static_cast<int64_t>(again.num_accumulated.size());
  facts.output_difference = MaxDifference({again.output}, {both.plain.output});
  facts.num_missing = std::count_if(
      again.gradients.begin(), again.gradients.end() - 1,
      [](const at::Tensor& gradient) { return !gradient.defined(); });
  facts.has_input_gradient = again.gradients.back().defined();
  facts.most_accumulations = std::ranges::max(again.num_accumulated);
  facts.backward_runs = again.backward_runs;
  facts.raw_bytes = again.raw_bytes;
  facts.distinct_bytes = again.distinct_bytes;
  facts.plain_raw_bytes = both.plain.raw_bytes;
  facts.plain_distinct_bytes = both.plain.distinct_bytes;
  return facts;
}

void CompareGradients(const Both& both, const Both& with_dropout,
                      RecomputeFacts& facts) {
  facts.difference = both.Difference();
  facts.is_equal = both.IsEqual();
  facts.dropout_difference = with_dropout.Difference();
  facts.is_equal_with_dropout = with_dropout.IsEqual();
  facts.has_same_generator = EqualBits({with_dropout.recomputed.generator},
                                       {with_dropout.plain.generator});
}

void Describe(const RecomputeFacts& facts, CheckResult& check) {
  const bool is_equal = facts.is_equal && facts.is_equal_with_dropout;
  check.lines = {
      fmt::format(
          "gradients differ by {:.1e} (max {:.0e}), with dropout {:.1e}",
          facts.difference, kTolerance, facts.dropout_difference),
      is_equal ? "equal bits" : "other bits",
      fmt::format("saved: {} of {} bytes raw, {} of {} distinct",
                  facts.raw_bytes, facts.plain_raw_bytes, facts.distinct_bytes,
                  facts.plain_distinct_bytes)};
  check.figures["difference"] = facts.difference;
  check.figures["difference_with_dropout"] = facts.dropout_difference;
  check.figures["allowed_difference"] = kTolerance;
  check.figures["has_equal_bits"] = is_equal;
  check.figures["saved_raw_bytes"] = facts.raw_bytes;
  check.figures["saved_raw_bytes_plain"] = facts.plain_raw_bytes;
  check.figures["saved_distinct_bytes"] = facts.distinct_bytes;
  check.figures["saved_distinct_bytes_plain"] = facts.plain_distinct_bytes;
}

}  // namespace

CheckResult CheckRecomputation(const CheckOptions& options,
                               collectives::RankRunner& runner) {
  CheckResult check{kChecks[2].name, true, {}, {}};
  if (!runner.HasFirstRank()) return check;
  const Both both = MeasureBoth(options, 0);
  const Both with_dropout = MeasureBoth(options, kDropout);
  RecomputeFacts facts = FactsOf(both);
  if (both.HasAllGradients() && with_dropout.HasAllGradients()) {
    CompareGradients(both, with_dropout, facts);
  }
  Describe(facts, check);
  const auto found =
      Diagnose(facts, kTolerance, /*needs_equal_bits=*/options.mine == nullptr);
  check.has_passed = !found;
  if (found) check.lines = {found->seen, "expected: " + found->expected};
  return check;
}

}  // namespace trainsys
