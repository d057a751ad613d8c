// Proves on a job's first steps that its ranks trained as one rank would.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "collectives/run_ranks.h"
#include "trainsys/data/byte_dataset.h"
#include "trainsys/train/job.h"

namespace trainsys {

inline constexpr double kF64Tolerance = 1e-12;

struct Proof {
  int64_t steps = 0;
  // Reference A, one rank running the local batches in turn: equal bits?
  bool has_equal_bits = false;
  // Reference B, plain libtorch on the whole batch: the largest difference of
  // any parameter, in f32 and with everything computed again in f64.
  double f32_difference = 0;
  double f64_difference = 0;

  bool IsWithinTolerance() const { return f64_difference <= kF64Tolerance; }
  bool HasPassed() const { return has_equal_bits && IsWithinTolerance(); }
};

// Called as the proof goes on, from one thread at a time but not always the
// same. Where rank 0 runs only.
using ProofObserver = std::function<void(int64_t done, int64_t all)>;

// `snapshot`: the job's parameters after options.snapshot_steps steps, where
// rank 0 runs.
// Where ranks are processes, every process takes part: the job's first steps
// run on them again, in f64. Result: nothing where rank 0 does not run.
// Blocks: for about as long as snapshot_steps steps of the job take, five
// times over. Memory: see ProofMemoryBytes.
// Errors: those of RunJob; Interrupted where a signal was noted, or noted by
// another process.
std::optional<Proof> Prove(collectives::RankRunner& runner,
                           const JobOptions& options, const ByteDataset& data,
                           const std::vector<at::Tensor>& snapshot,
                           const ProofObserver& observer = {});

// About what the job and its proof need at their peak, which is when one rank
// holds the f64 activations of the whole batch. Measured with 16 and 32 rows
// of 256 tokens: 76 MB a row on top of 0.4 GB; 256 rows took less, 15.5 GB.
// Without recomputation twice that a row is assumed, not measured.
int64_t ProofMemoryBytes(const JobOptions& options);

}  // namespace trainsys
