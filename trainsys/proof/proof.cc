#include "trainsys/proof/proof.h"

#include <atomic>
#include <future>
#include <mutex>
#include <utility>

#include "trainsys/model/transformer_lm.h"
#include "trainsys/proof/references.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/terminal/interrupt.h"
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

// What of the proof is done, by all of its threads, and whether it goes on.
class Advance {
 public:
  // `all`: local batches in all.
  Advance(int64_t all, const ProofObserver& observer)
      : all_(all), observer_(observer) {}

  // Threads: any.
  void Add(int64_t batches) {
    const std::lock_guard lock(mutex_);
    done_ += batches;
    if (observer_) observer_(done_, all_);
  }

  // Threads: any. Errors: Interrupted, once someone has stopped it or a signal
  // was noted.
  void ThrowIfStopped() const {
    if (const int signal = stop_signal_) throw Interrupted(signal);
    ThrowIfInterrupted();
  }
  void Stop(int signal) { stop_signal_ = signal; }

 private:
  const int64_t all_;
  const ProofObserver& observer_;
  std::mutex mutex_;
  int64_t done_ = 0;  // guarded by mutex_
  std::atomic<int> stop_signal_{0};
};

Parameters ReferenceA(const JobOptions& options, const ByteDataset& data,
                      Advance& advance) {
  const auto model = PlainModel(options, data);
  FlatOptimizer optimizer(model->parameters(), AdamWOf(options));
  TrainInMicroSteps(model->parameters(), optimizer, options.snapshot_steps,
                    options.ranks, [&](int64_t step, int rank) {
                      advance.ThrowIfStopped();
                      advance.Add(1);
                      return LocalLoss(options, data, *model, step, rank);
                    });
  return Snapshot(model->parameters());
}

Parameters ReferenceB(const JobOptions& options, const ByteDataset& data,
                      Advance& advance) {
  const auto model = PlainModel(options, data);
  const auto optimizer = LibtorchAdamW(model->parameters(), AdamWOf(options));
  TrainOnWholeBatch(*optimizer, options.snapshot_steps, [&](int64_t step) {
    advance.ThrowIfStopped();
    advance.Add(options.ranks);
    return WholeLoss(options, data, *model, step);
  });
  return Snapshot(model->parameters());
}

// The job's first steps by its ranks. Errors: Interrupted.
JobResult RunRanksInF64(collectives::RankRunner& runner,
                        const JobOptions& in_f64, const ByteDataset& data,
                        Advance& advance) {
  JobResult result = RunJob(runner, in_f64, data, [&](int64_t, double) {
    advance.Add(in_f64.ranks);
  });
  if (result.stop_signal == 0) return result;
  advance.Stop(result.stop_signal);
  throw Interrupted(result.stop_signal);
}

}  // namespace

std::optional<Proof> Prove(collectives::RankRunner& runner,
                           const JobOptions& options, const ByteDataset& data,
                           const Parameters& snapshot,
                           const ProofObserver& observer) {
  JobOptions in_f64 = options;
  in_f64.precision = Precision::kF64;
  in_f64.steps = options.snapshot_steps;
  in_f64.activation_budget_bytes *= 2;  // for the same plan
  Advance advance(4 * options.ranks * options.snapshot_steps, observer);
  if (!runner.HasFirstRank()) {
    RunRanksInF64(runner, in_f64, data, advance);
    return std::nullopt;
  }
  // Beside the ranks, which start at once: those elsewhere wait for them.
  auto whole = std::async(std::launch::async, [&] {
    return std::pair(ReferenceB(options, data, advance),
                     ReferenceB(in_f64, data, advance));
  });
  Proof proof;
  proof.steps = options.snapshot_steps;
  const Parameters ranks_in_f64 =
      RunRanksInF64(runner, in_f64, data, advance).snapshot;
  proof.has_equal_bits =
      EqualBits(snapshot, ReferenceA(options, data, advance));
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
