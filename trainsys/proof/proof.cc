#include "trainsys/proof/proof.h"

#include <future>

#include "trainsys/model/transformer_lm.h"
#include "trainsys/proof/references.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/zero/flat_optimizer.h"

namespace trainsys {
namespace {

using Parameters = std::vector<at::Tensor>;

// A plain model, as rank 0 starts with it.
std::shared_ptr<TransformerLM> PlainModel(JobOptions options,
                                          const ByteDataset& data) {
  options.recompute = "none";
  options.activation_budget_bytes = 0;
  return MakeModel(options, data.context(), /*rank=*/0);
}

Parameters ReferenceA(const JobOptions& options, const ByteDataset& data) {
  const auto model = PlainModel(options, data);
  FlatOptimizer optimizer(model->parameters(), AdamWOf(options));
  TrainInMicroSteps(model->parameters(), optimizer, options.snapshot_steps,
                    options.ranks, [&](int64_t step, int rank) {
                      return LocalLoss(options, data, *model, step, rank);
                    });
  return Snapshot(model->parameters());
}

Parameters ReferenceB(const JobOptions& options, const ByteDataset& data) {
  const auto model = PlainModel(options, data);
  const auto optimizer = LibtorchAdamW(model->parameters(), AdamWOf(options));
  TrainOnWholeBatch(*optimizer, options.snapshot_steps, [&](int64_t step) {
    return WholeLoss(options, data, *model, step);
  });
  return Snapshot(model->parameters());
}

}  // namespace

std::optional<Proof> Prove(collectives::RankRunner& runner,
                           const JobOptions& options, const ByteDataset& data,
                           const Parameters& snapshot) {
  JobOptions in_f64 = options;
  in_f64.precision = Precision::kF64;
  in_f64.steps = options.snapshot_steps;
  in_f64.activation_budget_bytes *= 2;  // for the same plan
  if (!runner.HasFirstRank()) {
    RunJob(runner, in_f64, data);
    return std::nullopt;
  }
  // Beside the ranks, which start at once: those elsewhere wait for them.
  auto whole = std::async(std::launch::async, [&] {
    return std::pair(ReferenceB(options, data), ReferenceB(in_f64, data));
  });
  Proof proof;
  proof.steps = options.snapshot_steps;
  const Parameters ranks_in_f64 = RunJob(runner, in_f64, data).snapshot;
  proof.has_equal_bits = EqualBits(snapshot, ReferenceA(options, data));
  const auto [whole_f32, whole_f64] = whole.get();
  proof.f32_difference = MaxDifference(snapshot, whole_f32);
  proof.f64_difference = MaxDifference(ranks_in_f64, whole_f64);
  return proof;
}

int64_t ProofMemoryBytes(const JobOptions& options) {
  constexpr int64_t kBytes = 400'000'000;
  constexpr int64_t kBytesPerRow = 76'000'000;
  // Unless every block is recomputed, the ranks' own f64 run, beside it, may
  // hold as much.
  const bool is_full =
      options.recompute == "full" && options.activation_budget_bytes <= 0;
  const int64_t times = is_full ? 1 : 2;
  return kBytes + times * kBytesPerRow * options.ranks * options.batch;
}

}  // namespace trainsys
