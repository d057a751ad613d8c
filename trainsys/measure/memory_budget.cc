#include "trainsys/measure/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "collectives/errors.h"
#include "trainsys/measure/agreed_interrupt.h"
#include "trainsys/measure/memory_timeline.h"
#include "trainsys/measure/trained_model.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {
namespace {

using collectives::PhaseRecord;
using collectives::Recorder;

constexpr int64_t kSteps = 3;  // the last one is as all later ones

std::vector<JobOptions> JobsLike(const JobOptions& base,
                                 const std::vector<int>& ranks) {
  std::vector<JobOptions> jobs;
  for (const int n : ranks) {
    for (const int zero : {0, 1, 2}) {
      for (const char* recompute : {"none", "full"}) {
        JobOptions& job = jobs.emplace_back(base);
        job.steps = kSteps;
        job.ranks = n;
        job.zero = zero;
        job.recompute = recompute;
      }
    }
  }
  return jobs;
}

int64_t LargestDifference(const StepMemory& ledger, const StepMemory& budget) {
  int64_t largest = 0;
  for (const StepPoint point : kStepPoints) {
    for (const MemoryCategory c : kMemoryCategories) {
      largest =
          std::max(largest, std::abs(ledger[point][c] - budget[point][c]));
    }
  }
  return largest;
}

MemoryCase CaseOf(const JobOptions& job, int64_t context,
                  const JobResult& result) {
  const RankSummary& first = result.ranks.at(0);
  MemoryCase out;
  out.ranks = job.ranks;
  out.zero = job.zero;
  out.recompute = job.recompute;
  out.budget = BudgetOf(job, context, 0);
  out.ledger = first.memory;
  out.peak_bytes = first.peak.bytes;
  out.activation_peak_bytes =
      first.peak.of_category[MemoryCategory::kActivation];
  for (size_t r = 0; r < result.ranks.size(); ++r) {
    out.difference_bytes = std::max(
        out.difference_bytes,
        LargestDifference(result.ranks[r].memory,
                          BudgetOf(job, context, static_cast<int>(r))));
  }
  out.parameter_hash = first.parameter_hash;
  out.steps = static_cast<int64_t>(result.losses.size());
  return out;
}

MemoryTimeline TimelineOf(const JobOptions& job, const JobResult& result) {
  const Recorder& recorder = result.recorders.at(0);
  const int64_t step = static_cast<int64_t>(result.losses.size()) - 1;
  MemoryTimeline timeline{job.ranks, job.zero, job.recompute, {}, {}};
  const auto whole = FindPhase(recorder, "step", step);
  if (!whole) return timeline;
  const auto ms = [&whole](int64_t ns) {
    return static_cast<double>(ns - whole->begin_ns) / 1e6;
  };
  for (const PhaseRecord& phase : recorder.Phases()) {
    if (phase.step != step || phase.name == "step") continue;
    timeline.phases.push_back(
        {phase.name, ms(phase.begin_ns), ms(phase.end_ns)});
  }
  timeline.samples =
      MemorySamples(result.before_last_step, result.last_step_events,
                    whole->begin_ns, whole->end_ns);
  return timeline;
}

std::string NameOf(const JobOptions& job) {
  const std::string zero =
      job.zero == 0 ? "DDP" : fmt::format("ZeRO-{}", job.zero);
  return fmt::format("{} ranks, {}, recompute {}", job.ranks, zero,
                     job.recompute);
}

// Neither stages nor recomputation change a bit: `reference` has the
// parameters of as many ranks, if there is one.
void CheckHashes(const JobOptions& job, const JobResult& result,
                 uint64_t reference) {
  for (size_t r = 0; r < result.ranks.size(); ++r) {
    const uint64_t hash = result.ranks[r].parameter_hash;
    if (hash == reference) continue;
    throw collectives::Error(fmt::format(
        "{}: rank {} ends with parameters {:016x}, expected {:016x} as all "
        "jobs of {} ranks",
        NameOf(job), r, hash, reference, job.ranks));
  }
}

// The job's findings, beside those of the jobs before.
void Add(const JobOptions& job, int64_t context, const JobResult& result,
         bool has_timeline, MemoryFinding& finding) {
  MemoryCase found = CaseOf(job, context, result);
  const bool is_first =
      finding.cases.empty() || finding.cases.back().ranks != job.ranks;
  CheckHashes(
      job, result,
      is_first ? found.parameter_hash : finding.cases.back().parameter_hash);
  finding.cases.push_back(std::move(found));
  if (has_timeline) finding.timelines.push_back(TimelineOf(job, result));
}

}  // namespace

MemoryFinding MeasureMemory(collectives::RankRunner& runner,
                            const JobOptions& base, const ByteDataset& data,
                            const std::vector<int>& ranks,
                            const MeasureProgress& progress) {
  MemoryFinding finding;
  TransformerConfig config = base.model;
  config.context = data.context();
  finding.model = TrainedModelOf(config, base.batch);
  finding.bucket_bytes = base.bucket_kb << 10;
  const std::vector<JobOptions> jobs = JobsLike(base, ranks);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const JobOptions& job = jobs[i];
    if (progress && runner.HasFirstRank()) {
      progress(static_cast<int64_t>(i), static_cast<int64_t>(jobs.size()),
               NameOf(job));
    }
    const JobResult result = RunJob(runner, job, data);
    // Asked to, it stops before its end.
    ThrowIfAnyInterrupted(runner, MostOf(ranks));
    if (!runner.HasFirstRank()) continue;
    const bool has_timeline = job.ranks == ranks.back() && job.zero == 1;
    Add(job, data.context(), result, has_timeline, finding);
  }
  return finding;
}

}  // namespace trainsys
