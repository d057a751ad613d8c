#include "trainsys/train/job.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "collectives/errors.h"
#include "collectives/gather.h"
#include "collectives/record/clock.h"
#include "trainsys/budget/this_libtorch.h"
#include "trainsys/budget/transformer_activations.h"
#include "trainsys/ddp/async_ddp.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/ddp/same_module.h"
#include "trainsys/ddp/simple_ddp.h"
#include "trainsys/model/transformer_lm.h"
#include "trainsys/random/rank_generator.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/tensor/tensor_memory.h"
#include "trainsys/terminal/interrupt.h"
#include "trainsys/train/segment_runner.h"
#include "trainsys/train/step.h"
#include "trainsys/zero/flat_optimizer.h"
#include "trainsys/zero/step_in_backward.h"
#include "trainsys/zero/zero_optimizer.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::InvalidArgument;

constexpr int64_t kBeforeTheFirstStep = -1;  // for the initial weights
constexpr int64_t kByteValues = 256;         // tokens are bytes

void CheckRange(const std::string& name, int64_t value, int64_t least,
                int64_t most) {
  if (value >= least && value <= most) return;
  throw InvalidArgument(name + " is " + std::to_string(value) + ", expected " +
                        std::to_string(least) + " to " + std::to_string(most));
}

constexpr char kDdpKinds[] = "simple, async or bucketed";

void CheckZero(const JobOptions& options) {
  const auto refuse = [](const std::string& what, const std::string& expected) {
    throw InvalidArgument(what + ", expected " + expected);
  };
  if (options.zero == 0 && options.partition != Partition::kFlat) {
    refuse("a partition with zero 0, where nothing is cut", "zero 1 or 2");
  }
  if (options.overlap_step && options.zero == 0) {
    refuse("overlap-step with zero 0, where nothing is sent after a step",
           "zero 1 or 2");
  }
  if (options.reduce_scatter && options.zero == 0) {
    refuse("reduce-scatter with zero 0, where every rank needs all gradients",
           "zero 1 or 2");
  }
  if (options.ddp == "bucketed") return;
  if (options.zero == 2 || options.reduce_scatter || options.overlap_step) {
    refuse("ddp " + options.ddp +
               " with zero 2, reduce-scatter or "
               "overlap-step, which work on buckets",
           "ddp bucketed");
  }
}

bool IsDdpKind(const std::string& ddp) {
  return ddp == "simple" || ddp == "async" || ddp == "bucketed";
}

// Which must go together.
struct Trainer {
  std::unique_ptr<DataParallel> ddp;
  std::unique_ptr<Optimizer> optimizer;
};

GradientSharding ShardingOf(const JobOptions& options) {
  if (options.zero == 2) return GradientSharding::kStored;
  return options.reduce_scatter ? GradientSharding::kReduced
                                : GradientSharding::kNone;
}

// Where gradients need not come in buckets: on every rank, all of them.
Trainer MakeUnbucketed(const JobOptions& options, torch::nn::Module& model,
                       Communicator& comm) {
  BroadcastFromRank0(model, comm);
  Trainer trainer;
  if (options.ddp == "async") {
    trainer.ddp = std::make_unique<AsyncDDP>(model, comm);
  } else {
    trainer.ddp = std::make_unique<SimpleDDP>(model, comm);
  }
  const std::vector<at::Tensor>& parameters = trainer.ddp->parameters();
  if (options.zero == 0) {
    trainer.optimizer =
        std::make_unique<FlatOptimizer>(parameters, AdamWOf(options));
  } else {
    trainer.optimizer = std::make_unique<ZeROOptimizer>(
        parameters, comm, AdamWOf(options), options.partition);
  }
  return trainer;
}

// Ranks start different: rank 0's parameters win.
Trainer MakeTrainer(const JobOptions& options, torch::nn::Module& model,
                    Communicator& comm) {
  if (options.ddp != "bucketed") return MakeUnbucketed(options, model, comm);
  auto ddp = std::make_unique<BucketedDDP>(
      model, comm,
      BucketedDDPOptions{.bucket_bytes = options.bucket_kb << 10,
                         .sharding = ShardingOf(options),
                         .partition = options.partition});
  Trainer trainer;
  if (options.zero == 0) {
    trainer.optimizer =
        std::make_unique<FlatOptimizer>(ddp->parameters(), AdamWOf(options));
  } else if (options.overlap_step) {
    trainer.optimizer =
        std::make_unique<StepInBackward>(*ddp, comm, AdamWOf(options));
  } else {
    trainer.optimizer =
        std::make_unique<ZeROOptimizer>(*ddp, comm, AdamWOf(options));
  }
  trainer.ddp = std::move(ddp);
  return trainer;
}

int64_t BytesOf(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& t : tensors) {
    bytes += t.numel() * static_cast<int64_t>(t.element_size());
  }
  return bytes;
}

RankSummary Summarize(const DataParallel& ddp, const Optimizer& optimizer,
                      const MemoryLedger& ledger, const StepResult& last) {
  RankSummary summary;
  summary.parameter_bytes = BytesOf(ddp.parameters());
  summary.gradient_bytes = ddp.GradientBytes();
  summary.state_bytes = optimizer.StateBytes();
  summary.parameter_hash = HashOf(ddp.parameters());
  for (StepPoint point : kStepPoints) {
    summary.memory[point] = ledger.At(Name(point));
  }
  summary.peak = ledger.Peak();
  summary.saved_raw_bytes = last.saved_raw_bytes;
  summary.saved_distinct_bytes = last.saved_distinct_bytes;
  return summary;
}

// Events kept by all ranks together, 40 bytes each.
constexpr size_t kMemoryEvents = size_t{1} << 19;

bool IsInterrupted() { return InterruptSignal() != 0; }

// All of them, or none.
std::vector<MemoryEvent> EventsSince(const MemoryLedger& ledger,
                                     int64_t began_ns) {
  std::vector<MemoryEvent> events = ledger.Events();
  const auto first = std::find_if(
      events.begin(), events.end(),
      [began_ns](const MemoryEvent& e) { return e.time_ns >= began_ns; });
  if (first == events.begin() && ledger.lost_events() > 0) return {};
  events.erase(events.begin(), first);
  return events;
}

// Trains one rank. Only rank 0 writes `result`: the others may be elsewhere.
// Result: whether it ended before its last step, the same on all ranks.
bool TrainRank(const JobOptions& options, const ByteDataset& data,
               const StepObserver& observer, Communicator& comm,
               JobResult& result) {
  MemoryLedger ledger(kMemoryEvents / static_cast<size_t>(comm.ranks()));
  const LedgerScope memory(ledger);
  const auto model = MakeModel(options, data.context(), comm.rank());
  // The optimizer goes first: it may follow ddp's backward.
  const Trainer trainer = MakeTrainer(options, *model, comm);
  MarkMemory(Name(StepPoint::kConstructed));
  ledger.ResetPeak();
  const bool is_first_rank = comm.rank() == 0;
  StepResult last;
  int64_t step = 0, began_ns = 0;
  for (; step < options.steps && !last.must_stop; ++step) {
    if (is_first_rank) result.before_last_step = ledger.Current();
    began_ns = collectives::NowNs();
    const auto loss_of_batch = [&] {
      return LocalLoss(options, data, *model, step, comm.rank());
    };
    last = TrainStep(
        {loss_of_batch, *trainer.ddp, *trainer.optimizer, comm, IsInterrupted},
        step);
    if (!is_first_rank) continue;
    result.losses.push_back(last.loss);
    if (observer) observer(step, last.loss);
    if (step + 1 == options.snapshot_steps) {
      const LedgerScope not_the_ranks(ProcessLedger());
      result.snapshot = Snapshot(trainer.ddp->parameters());
    }
  }
  if (is_first_rank) result.last_step_events = EventsSince(ledger, began_ns);
  std::vector<RankSummary> all =
      Gather(comm, Summarize(*trainer.ddp, *trainer.optimizer, ledger, last),
             "rank summaries");
  if (is_first_rank) result.ranks = std::move(all);
  return step < options.steps;
}

at::Tensor LossOfRows(const JobOptions& options, const ByteDataset& data,
                      const TransformerLM& model, int64_t step, int rank,
                      int64_t first_row, int64_t num_rows) {
  const RankGeneratorScope random(MakeRankGenerator(options.seed, step, rank));
  const Batch batch = [&] {
    const CategoryScope inputs(MemoryCategory::kInput);
    return data.Rows(options.seed, step, first_row, num_rows);
  }();
  return model.Loss(batch.tokens, batch.targets);
}

}  // namespace

void Validate(const JobOptions& options) {
  Validate(options.model);
  CheckRange("vocab", options.model.vocab, kByteValues, 1'000'000);
  CheckRange("ranks", options.ranks, 1, collectives::kMaxRanks);
  CheckRange("steps", options.steps, 1, 1'000'000);
  CheckRange("batch", options.batch, 1, 1024);
  CheckRange("bucket-kb", options.bucket_kb, 1, int64_t{1} << 20);
  CheckRange("zero", options.zero, 0, 2);
  if (!IsDdpKind(options.ddp)) {
    throw InvalidArgument("ddp is '" + options.ddp + "', expected " +
                          kDdpKinds);
  }
  CheckZero(options);
  if (options.precision != Precision::kF32 &&
      options.precision != Precision::kF64) {
    throw InvalidArgument("precision " + NameOf(options.precision) +
                          ", expected f32 or f64");
  }
  PlanOfPolicy(options.recompute, options.model.layers);
  if (!(options.lr > 0) || !std::isfinite(options.lr)) {
    throw InvalidArgument("lr is " + std::to_string(options.lr) +
                          ", expected a finite number above 0");
  }
}

RecomputePlan PlanOf(const JobOptions& options, int64_t context) {
  if (options.activation_budget_bytes <= 0) {
    return PlanOfPolicy(options.recompute, options.model.layers);
  }
  const int64_t element_bytes =
      BytesOf(options.precision, OptimizerKind::kAdam).parameter;
  TransformerConfig config = options.model;
  config.context = context;
  return PlanWithin(config,
                    {options.batch, context, element_bytes, kThisLibtorch},
                    options.activation_budget_bytes);
}

StepMemory BudgetOf(const JobOptions& options, int64_t context, int rank) {
  TransformerJobShape shape;
  shape.model = options.model;
  shape.model.context = context;
  shape.rows = options.batch;
  shape.positions = context;
  shape.plan = PlanOf(options, context);
  shape.libtorch = kThisLibtorch;
  shape.states = {.zero_stage = options.zero,
                  .partition = options.partition,
                  .reduction = options.reduce_scatter
                                   ? GradientReduction::kReduceScatter
                                   : GradientReduction::kAllReduce,
                  .precision = options.precision,
                  .ranks = options.ranks,
                  .rank = rank,
                  .bucket_bytes = options.bucket_kb << 10};
  return StepBudgetOf(shape);
}

AdamWOptions AdamWOf(const JobOptions& options) {
  return {.lr = options.lr,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .eps = 1e-8,
          .weight_decay = 0.1};
}

std::shared_ptr<TransformerLM> MakeModel(const JobOptions& options,
                                         int64_t context, int rank) {
  const RankGeneratorScope random(
      MakeRankGenerator(options.seed, kBeforeTheFirstStep, rank));
  // What is a parameter the model's user knows; the rest are tables.
  const CategoryScope tables(MemoryCategory::kOther);
  TransformerConfig config = options.model;
  config.context = context;
  auto model = std::make_shared<TransformerLM>(
      config, RunnerFor(PlanOf(options, context)));
  if (options.precision == Precision::kF64) model->to(at::kDouble);
  return model;
}

at::Tensor LocalLoss(const JobOptions& options, const ByteDataset& data,
                     const TransformerLM& model, int64_t step, int rank) {
  return LossOfRows(options, data, model, step, rank, rank * options.batch,
                    options.batch);
}

at::Tensor WholeLoss(const JobOptions& options, const ByteDataset& data,
                     const TransformerLM& model, int64_t step) {
  return LossOfRows(options, data, model, step, 0, 0,
                    options.ranks * options.batch);
}

JobResult RunJob(collectives::RankRunner& runner, const JobOptions& options,
                 const ByteDataset& data, const StepObserver& observer) {
  Validate(options);
  JobResult result;
  std::atomic<bool> is_cut_short{false};  // by each rank that runs here
  ProcessLedger().ResetPeak();
  result.recorders =
      runner.Run({.ranks = options.ranks}, [&](Communicator& comm) {
        if (TrainRank(options, data, observer, comm, result)) {
          is_cut_short = true;
        }
      });
  if (is_cut_short)
    result.stop_signal = IsInterrupted() ? InterruptSignal() : SIGINT;
  result.outside_peak_bytes = ProcessLedger().Peak().bytes;
  return result;
}

}  // namespace trainsys
