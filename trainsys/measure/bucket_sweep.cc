#include "trainsys/measure/bucket_sweep.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "collectives/communicator.h"
#include "collectives/errors.h"
#include "trainsys/measure/agreed_interrupt.h"
#include "trainsys/measure/interleaved.h"
#include "trainsys/measure/link_sweep.h"
#include "trainsys/measure/step_times.h"
#include "trainsys/measure/sweep_step.h"
#include "trainsys/measure/trained_model.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::InvalidArgument;

// Before the first turn that counts: buckets are planned again before the
// second step, and allocators get their sizes.
constexpr int kWarmUps = 3;

// The sizes, then one bucket of all, averaged and not.
std::vector<SweepVariant> VariantsOf(const BucketSweepOptions& options) {
  std::vector<SweepVariant> variants;
  for (const int64_t bytes : options.bucket_bytes) {
    variants.push_back({bytes, true});
  }
  variants.push_back({.is_averaged = true});
  variants.push_back({.is_averaged = false});
  return variants;
}

// Where the sweep is, for a person who waits: a step of more ranks takes
// longer, for they share cores.
class StepsDone {
 public:
  StepsDone(const BucketSweepOptions& options, const MeasureProgress& progress)
      : turns_(options.turns), progress_(progress) {
    const auto variants = static_cast<int64_t>(VariantsOf(options).size());
    for (const int ranks : options.ranks) {
      all_ += ranks * (variants * (kWarmUps + turns_) + 1 + options.link_turns);
    }
  }

  // Before a step, and before a turn of all-reduces alone.
  void Show(int ranks, int turn) {
    Show(ranks, turn < 0 ? std::string("warm-up")
                         : fmt::format("turn {} of {}", turn + 1, turns_));
  }
  void ShowLink(int ranks) { Show(ranks, "all-reduces alone"); }

 private:
  void Show(int ranks, const std::string& what) {
    if (progress_)
      progress_(done_, all_, fmt::format("{} ranks, {}", ranks, what));
    done_ += ranks;
  }

  const int turns_;
  const MeasureProgress& progress_;
  int64_t done_ = 0, all_ = 0;
};

// One rank's part of a sweep.
class RankSweep {
 public:
  RankSweep(const BucketSweepOptions& options, const JobOptions& job,
            const ByteDataset& data, Communicator& comm)
      : options_(options), comm_(comm), variants_(VariantsOf(options)) {
    for (const SweepVariant& variant : variants_) {
      steps_.push_back(std::make_unique<SweepStep>(job, variant, data, comm));
    }
    marks_.resize(steps_.size());
  }

  // A collective. Result: on every rank the same; false if it was interrupted.
  bool RunTurns(StepsDone& done) {
    for (int turn = -kWarmUps; turn < options_.turns; ++turn) {
      for (size_t i = 0; i < steps_.size(); ++i) {
        if (comm_.rank() == 0) done.Show(comm_.ranks(), turn);
        // The ranks wait for one another here.
        if (AgreedSignal(comm_) != 0) return false;
        const size_t v = VariantAt(turn + kWarmUps, i, steps_.size());
        StepMarks marks = steps_[v]->Run(turn + kWarmUps);
        if (turn < 0) continue;
        if (!options_.has_one_clock) marks = SinceBegin(std::move(marks));
        marks_[v].push_back(std::move(marks));
      }
    }
    return true;
  }

  // A collective. Result: nothing if it was interrupted.
  std::optional<MeasuredSweep> Finish(StepsDone& done) {
    MeasuredSweep sweep;
    sweep.ranks = comm_.ranks();
    sweep.elem_bytes = steps_[0]->ElemBytes();
    for (size_t v = 0; v < steps_.size(); ++v) {
      MeasuredSteps steps{variants_[v].bucket_bytes, steps_[v]->plan(),
                          TurnsOf(marks_[v])};
      if (!variants_[v].is_averaged) {
        sweep.alone = std::move(steps);
      } else if (variants_[v].bucket_bytes == BucketLimits::kMost) {
        sweep.no_overlap = std::move(steps);
      } else {
        sweep.sizes.push_back(std::move(steps));
      }
    }
    const int64_t all_bytes =
        sweep.no_overlap.plan.at(0).layout.elems * sweep.elem_bytes;
    sweep.samples =
        TimeAllReduces(comm_, LinkSizes(all_bytes), options_.link_turns, [&] {
          if (comm_.rank() == 0) done.ShowLink(comm_.ranks());
          return AgreedSignal(comm_) == 0;
        });
    if (sweep.samples.empty()) return std::nullopt;
    return sweep;
  }

 private:
  std::vector<StepTimes> TurnsOf(std::vector<StepMarks>& turns) {
    std::vector<StepTimes> times;
    for (StepMarks& marks : turns) {
      comm_.AllReduce(collectives::AsBuffer(std::span(marks)),
                      collectives::ReduceOp::kMax, "marks of a step");
      times.push_back(TimesOf(marks));
    }
    return times;
  }

  const BucketSweepOptions& options_;
  Communicator& comm_;
  const std::vector<SweepVariant> variants_;
  std::vector<std::unique_ptr<SweepStep>> steps_;
  std::vector<std::vector<StepMarks>> marks_;  // of each variant's turns
};

JobOptions JobOf(const BucketSweepOptions& options, int ranks) {
  JobOptions job = options.job;
  job.ranks = ranks;
  job.ddp = "bucketed";
  job.zero = 1;
  job.partition = Partition::kFlat;
  job.reduce_scatter = job.overlap_step = false;
  return job;
}

void Validate(const BucketSweepOptions& options) {
  if (options.turns < 1 || options.link_turns < 1) {
    throw InvalidArgument("turns of a sweep: " + std::to_string(options.turns) +
                          " and " + std::to_string(options.link_turns) +
                          " of links, expected 1 or more");
  }
  for (const int ranks : options.ranks) Validate(JobOf(options, ranks));
}

}  // namespace

std::vector<int64_t> SweptBucketSizes() {
  std::vector<int64_t> sizes;
  for (int64_t kib = 16; kib <= 16 << 10; kib *= 2) sizes.push_back(kib << 10);
  return sizes;
}

BucketSweepOptions ReportSweep() {
  BucketSweepOptions options;
  options.job.model.layers = 24;
  options.job.batch = 1;
  return options;
}

BucketFinding MeasureBuckets(collectives::RankRunner& runner,
                             const BucketSweepOptions& options,
                             const ByteDataset& data,
                             const MeasureProgress& progress) {
  Validate(options);
  BucketFinding finding;
  TransformerConfig config = options.job.model;
  config.context = data.context();
  finding.model = TrainedModelOf(config, options.job.batch);
  finding.zero = 1;
  finding.recompute = options.job.recompute;
  StepsDone done(options, progress);
  const int most = MostOf(options.ranks);
  for (const int ranks : options.ranks) {
    const JobOptions job = JobOf(options, ranks);
    runner.Run({.ranks = ranks}, [&](Communicator& comm) {
      RankSweep sweep(options, job, data, comm);
      if (!sweep.RunTurns(done)) return;
      const std::optional<MeasuredSweep> measured = sweep.Finish(done);
      if (measured && comm.rank() == 0) {
        finding.sweeps.push_back(FiguresOf(*measured));
      }
    });
    ThrowIfAnyInterrupted(runner, most);
  }
  return finding;
}

}  // namespace trainsys
