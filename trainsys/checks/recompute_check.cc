// Check 3: recomputation keeps the inputs only and changes no gradient.
#include <ATen/ops/randn.h>
#include <fmt/core.h>

#include <utility>

#include "trainsys/checks/checks.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/random/rank_generator.h"
#include "trainsys/recompute/checkpoint.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

constexpr double kTolerance = 1e-5;

struct Measured {
  std::vector<at::Tensor> gradients;  // of every parameter, then of x
  int64_t raw_bytes = 0;
  int64_t distinct_bytes = 0;
};

Measured Measure(SmallModel& model) {
  at::Generator generator = MakeRankGenerator(/*seed=*/5, 0, 0);
  const at::Tensor x =
      at::randn({64, 256}, generator).requires_grad_(true);  // [B, F]
  Measured measured;
  at::Tensor loss;
  {
    const SavedBytesScope saved(model.parameters());
    loss = model.Forward(x).square().mean();
    measured.raw_bytes = saved.raw_bytes();
    measured.distinct_bytes = saved.distinct_bytes();
  }
  loss.backward();
  for (const at::Tensor& p : model.parameters()) {
    measured.gradients.push_back(p.grad());
  }
  measured.gradients.push_back(x.grad());
  return measured;
}

// Keeps what it must not keep: the parameters, as if they were inputs.
BlockRunner KeepingParameters(std::shared_ptr<SmallModel>& model) {
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

}  // namespace

CheckResult CheckRecomputation(const CheckOptions& options,
                               collectives::RankRunner& runner) {
  CheckResult check{"recomputation, 1 rank", true, ""};
  if (!runner.HasFirstRank()) return check;
  constexpr uint64_t kSeed = 3;
  const auto plain_model = MakeWideBlocks(kSeed, Plain());
  std::shared_ptr<SmallModel> model;
  model = MakeWideBlocks(kSeed, options.fault == Fault::kParamsSaved
                                    ? KeepingParameters(model)
                                    : Checkpointed());
  const Measured plain = Measure(*plain_model);
  const Measured recomputed = Measure(*model);
  const double difference =
      MaxDifference(recomputed.gradients, plain.gradients);
  const bool is_equal = EqualBits(recomputed.gradients, plain.gradients);
  check.has_passed = difference <= kTolerance && is_equal &&
                     2 * recomputed.raw_bytes <= plain.raw_bytes &&
                     2 * recomputed.distinct_bytes <= plain.distinct_bytes;
  check.figures = fmt::format(
      "gradients differ by {:.1e} (allowed {:.0e}), {} bits; saved for "
      "backward: {} of {} bytes raw, {} of {} distinct without parameters",
      difference, kTolerance, is_equal ? "equal" : "DIFFERENT",
      recomputed.raw_bytes, plain.raw_bytes, recomputed.distinct_bytes,
      plain.distinct_bytes);
  return check;
}

}  // namespace trainsys
