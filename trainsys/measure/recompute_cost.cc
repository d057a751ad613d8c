#include "trainsys/measure/recompute_cost.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainsys/budget/this_libtorch.h"
#include "trainsys/budget/transformer_activations.h"
#include "trainsys/measure/interleaved.h"
#include "trainsys/measure/trained_model.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/model/transformer_lm.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

// The first is what the others are set against.
constexpr const char* kPolicies[] = {"none", "selective", "every-4", "every-2",
                                     "full"};

struct Policy {
  JobOptions options;
  const ByteDataset& data;
  std::shared_ptr<TransformerLM> model;

  Policy(const JobOptions& base, const std::string& name,
         const ByteDataset& data)
      : options(base), data(data) {
    options.recompute = name;
    model = MakeModel(options, data.context(), /*rank=*/0);
  }

  at::Tensor Loss() const {
    return LocalLoss(options, data, *model, /*step=*/0, /*rank=*/0);
  }
  RecomputePlan plan() const { return PlanOf(options, data.context()); }
};

// Blocks, which may run twice, and the output layer, which does not; backward
// is two forwards.
double ExtraPercent(const TransformerConfig& config, const ForwardShape& shape,
                    const RecomputePlan& plan) {
  const auto flops = [&](const RecomputePlan& twice) {
    return static_cast<double>(RecomputedFlops(config, shape, twice));
  };
  const double output = 2.0 * static_cast<double>(shape.rows * shape.positions *
                                                  config.dim * config.vocab);
  const double forward = flops(PlanOfPolicy("full", config.layers)) + output;
  return 100 * flops(plan) / (3 * forward);
}

// All but the times.
RecomputeCost BytesOf(const Policy& policy) {
  const TransformerConfig& config = policy.model->config();
  const ForwardShape shape{policy.options.batch, policy.data.context(), 4,
                           kThisLibtorch};
  RecomputeCost cost;
  cost.policy = policy.options.recompute;
  cost.model_extra_percent = ExtraPercent(config, shape, policy.plan());
  cost.formula_bytes = SavedAfterForward(config, shape, policy.plan()).total();
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const SavedBytesScope saved(policy.model->parameters());
  const at::Tensor loss = policy.Loss();
  cost.saved_bytes = ledger.Current()[MemoryCategory::kActivation];
  loss.backward();
  cost.peak_bytes = ledger.Peak().of_category[MemoryCategory::kActivation];
  return cost;
}

}  // namespace

RecomputeFinding MeasureRecompute(const JobOptions& base,
                                  const ByteDataset& data, int turns,
                                  const MeasureProgress& progress) {
  std::vector<Policy> policies;
  for (const char* name : kPolicies) policies.emplace_back(base, name, data);
  std::vector<std::function<void()>> steps;
  for (const Policy& policy : policies) {
    steps.push_back([&policy] { policy.Loss().backward(); });
  }
  const auto ms = InterleavedMs(steps, turns, [&](int turn) {
    ThrowIfInterrupted();
    if (progress) progress(turn + 1, turns + 1, "");
  });
  RecomputeFinding finding;
  finding.model = TrainedModelOf(policies[0].model->config(), base.batch);
  finding.turns = turns;
  for (size_t p = 0; p < policies.size(); ++p) {
    RecomputeCost& cost = finding.costs.emplace_back(BytesOf(policies[p]));
    const auto num_turns = static_cast<size_t>(turns);
    cost.step_ms =
        OverTurns(num_turns, [&](size_t turn) { return ms[p][turn]; });
    cost.extra_percent = OverTurns(num_turns, [&](size_t turn) {
      return 100 * (ms[p][turn] / ms[0][turn] - 1);
    });
  }
  return finding;
}

}  // namespace trainsys
