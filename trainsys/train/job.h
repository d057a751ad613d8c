// The main job: a language model trained by several ranks at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/record/recorder.h"
#include "collectives/run_ranks.h"
#include "trainsys/data/byte_dataset.h"
#include "trainsys/optim/adamw.h"

namespace trainsys {

class TransformerLM;

enum class Recompute { kNone, kFull };  // kFull: each block of the model
enum class Precision { kF32, kF64 };

struct JobOptions {
  int ranks = 4;
  int64_t steps = 50;
  int64_t batch = 4;  // rows a rank
  int64_t bucket_kb = 512;
  Recompute recompute = Recompute::kFull;
  int zero = 1;  // 0: every rank has the whole optimizer state
  double lr = 3e-3;
  uint64_t seed = 1;
  Precision precision = Precision::kF32;
  // Rank 0's parameters are kept as they are after that many steps.
  int64_t snapshot_steps = 0;
};

// Errors: InvalidArgument for values no job can have.
void Validate(const JobOptions& options);

AdamWOptions OptimizerOptions(const JobOptions& options);

// What one rank held and ended with.
struct RankSummary {
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t state_bytes = 0;
  uint64_t parameter_hash = 0;  // of the parameters after the last step
};

// Filled where rank 0 ran, else empty.
struct JobResult {
  std::vector<double> losses;  // of each step, mean over the global batch
  std::vector<RankSummary> ranks;
  std::vector<collectives::Recorder> recorders;  // of each rank
  std::vector<at::Tensor> snapshot;
};

// Called on rank 0's thread after each step.
using StepObserver = std::function<void(int64_t step, double loss)>;

// Trains with BucketedDDP, ZeRO-1 and recomputation on options.ranks ranks.
// Ranks start from different weights, of which rank 0's win. Where ranks are
// processes, every process calls it with the same options and data.
// Blocks: until done.
// Errors: InvalidArgument for impossible options; RankFailed.
JobResult RunJob(collectives::RankRunner& runner, const JobOptions& options,
                 const ByteDataset& data, const StepObserver& observer = {});

// The model that rank `rank` starts with.
std::shared_ptr<TransformerLM> MakeModel(const JobOptions& options,
                                         int64_t context, int rank);

// The loss of rank `rank`'s part of a step's global batch, with that rank's
// random numbers; and that of the whole global batch, with rank 0's.
at::Tensor LocalLoss(const JobOptions& options, const ByteDataset& data,
                     const TransformerLM& model, int64_t step, int rank);
at::Tensor WholeLoss(const JobOptions& options, const ByteDataset& data,
                     const TransformerLM& model, int64_t step);

}  // namespace trainsys
