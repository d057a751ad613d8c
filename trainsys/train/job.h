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
#include "trainsys/budget/recompute_plan.h"
#include "trainsys/budget/step_budget.h"
#include "trainsys/data/byte_dataset.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/memory/step_memory.h"
#include "trainsys/model/transformer_config.h"
#include "trainsys/optim/optimizer_options.h"
#include "trainsys/zero/shard_plan.h"

namespace trainsys {

class TransformerLM;

struct JobOptions {
  TransformerConfig model;  // but for its context, which is the data's
  int ranks = 4;
  int64_t steps = 50;
  int64_t batch = 4;             // rows a rank
  std::string ddp = "bucketed";  // or "simple", "async": the references
  int64_t bucket_kb = 512;
  std::string recompute = "full";  // a policy of recompute_plan.h
  // Above 0: instead of a policy, the cheapest plan whose activations never
  // take more than that.
  int64_t activation_budget_bytes = 0;
  int zero = 1;  // stage 1 or 2; 0: every rank has the whole optimizer state
  Partition partition = Partition::kFlat;
  // Stage 1: gradients are reduced to their owners only. Stage 2 always.
  bool reduce_scatter = false;
  bool overlap_step = false;  // the optimizer steps inside backward
  double lr = 3e-3;
  uint64_t seed = 1;
  Precision precision = Precision::kF32;  // or kF64
  // Rank 0's parameters are kept as they are after that many steps.
  int64_t snapshot_steps = 0;
};

// Errors: InvalidArgument for values no job can have.
void Validate(const JobOptions& options);

AdamWOptions AdamWOf(const JobOptions& options);

// Which parts of the model run twice. `context`: the data's.
// Errors: InvalidArgument for an unknown policy, or where nothing fits.
RecomputePlan PlanOf(const JobOptions& options, int64_t context);

// What rank `rank` must hold at the named points of each step, with buckets.
StepMemory BudgetOf(const JobOptions& options, int64_t context, int rank);

// What one rank held and ended with.
struct RankSummary {
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;  // of their storages, padding included
  int64_t state_bytes = 0;
  uint64_t parameter_hash = 0;  // of the parameters after the last step
  // By the rank's ledger. The points are those of the last step; the peak is
  // of all steps, without construction.
  StepMemory memory;
  MemoryPeak peak;
  // What the last step's forward saved for backward; see SavedBytesScope.
  int64_t saved_raw_bytes = 0;
  int64_t saved_distinct_bytes = 0;
};

// Filled where rank 0 ran; else empty, but for the signal.
struct JobResult {
  // That ended the job before its last step: SIGINT where only other processes
  // got one. 0: none did.
  int stop_signal = 0;
  std::vector<double> losses;  // of each step, mean over the global batch
  std::vector<RankSummary> ranks;
  std::vector<collectives::Recorder> recorders;  // of each rank
  // Rank 0's last step: what it held before, and what its ledger booked since.
  // No events where the ledger has dropped some of them.
  MemorySplit before_last_step;
  std::vector<MemoryEvent> last_step_events;
  // The most that this process's threads outside ranks held meanwhile.
  int64_t outside_peak_bytes = 0;
  std::vector<at::Tensor> snapshot;
};

// Called on rank 0's thread after each step.
using StepObserver = std::function<void(int64_t step, double loss)>;

// Trains with data parallelism, ZeRO and recomputation on options.ranks ranks.
// Ranks start from different weights, of which rank 0's win. Where ranks are
// processes, every process calls it with the same options and data. Within an
// InterruptScope a signal to any of them ends it on all ranks after the step.
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
