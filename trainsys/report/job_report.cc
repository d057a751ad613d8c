#include "trainsys/report/job_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "collectives/errors.h"
#include "trainsys/terminal/units.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {
namespace {

using collectives::PhaseRecord;
using collectives::Record;
using collectives::Recorder;

// Stretches of time that do not overlap, in order.
using Spans = std::vector<PhaseRecord>;

// The complete phases of that name whose collectives are all still recorded.
Spans Recorded(const Recorder& recorder, const std::vector<Record>& records,
               const std::string& name) {
  const bool has_gap = recorder.lost() > 0 && !records.empty();
  const int64_t first_ns = has_gap ? records.front().posted_ns : 0;
  Spans spans;
  for (const PhaseRecord& phase : recorder.Phases()) {
    if (phase.name == name && phase.end_ns != 0 && phase.begin_ns >= first_ns) {
      spans.push_back(phase);
    }
  }
  return spans;
}

bool Contains(const Spans& spans, int64_t ns) {
  const auto after = std::upper_bound(
      spans.begin(), spans.end(), ns,
      [](int64_t at, const PhaseRecord& span) { return at < span.begin_ns; });
  return after != spans.begin() && ns < std::prev(after)->end_ns;
}

std::vector<double> Milliseconds(const Spans& spans) {
  std::vector<double> times;
  for (const PhaseRecord& span : spans) {
    times.push_back(static_cast<double>(span.end_ns - span.begin_ns) / 1e6);
  }
  return times;
}

// The smallest value that at least `share` of them do not exceed.
double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

RankReport ReportRank(const RankSummary& bytes, const Recorder& recorder) {
  const std::vector<Record> records = recorder.Records();
  const Spans steps = Recorded(recorder, records, "step");
  const Spans backwards = Recorded(recorder, records, "backward");
  RankReport report;
  report.bytes = bytes;
  report.clock = recorder.clock();
  report.num_steps = static_cast<int64_t>(steps.size());
  if (steps.empty()) return report;
  int64_t sent_bytes = 0, peers_ns = 0, data_ns = 0;
  for (const Record& record : records) {
    if (!Contains(steps, record.posted_ns)) continue;
    if (IsBucket(record)) {
      ++report.num_buckets;
      if (Contains(backwards, record.posted_ns)) {
        ++report.num_posted_in_backward;
      }
    }
    sent_bytes += record.sent_bytes;
    peers_ns += record.WaitedForPeersNs();
    data_ns += record.WaitedForDataNs();
  }
  const auto ms_per_step = [&report](int64_t ns) {
    return static_cast<double>(ns) / 1e6 /
           static_cast<double>(report.num_steps);
  };
  report.sent_bytes_per_step = sent_bytes / report.num_steps;
  report.waited_for_peers_ms = ms_per_step(peers_ns);
  report.waited_for_data_ms = ms_per_step(data_ns);
  return report;
}

int64_t UnshardedStateBytes(const RankReport& rank) {
  return 2 * rank.bytes.parameter_bytes;  // two moments
}

double Percent(int64_t part, int64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string RankLine(size_t rank, const RankReport& report) {
  const RankSummary& bytes = report.bytes;
  return fmt::format(
      "{:>4} {:>10} {:>9} {:>9} {:>5.1f} % {:>11} {:>8} {:>14}\n", rank,
      BytesText(bytes.parameter_bytes), BytesText(bytes.gradient_bytes),
      BytesText(bytes.state_bytes),
      Percent(bytes.state_bytes, UnshardedStateBytes(report)),
      fmt::format("{}/{}", report.num_posted_in_backward, report.num_buckets),
      BytesText(report.sent_bytes_per_step),
      fmt::format("{:.1f} + {:.1f}", report.waited_for_peers_ms,
                  report.waited_for_data_ms));
}

std::string SentBytesNote(const JobReport& report) {
  if (report.backend == "threads") {
    return "   * by rule: what a network would carry; shared memory sends "
           "nothing\n";
  }
  if (!report.has_rank_order) {
    return "   * by rule: what a ring would send\n";
  }
  return "   * by rule: what a ring would send; the exchange of chunks sends "
         "as much\n";
}

std::string RankTable(const JobReport& report) {
  constexpr size_t kMostLines = 16;
  const std::vector<RankReport>& ranks = report.ranks;
  std::string text =
      "rank parameters gradients optimizer   share     buckets     sent    "
      "wait a step\n"
      "                                   of whole in backward  a step*  "
      "peers+data, ms\n";
  const size_t shown = std::min(ranks.size(), kMostLines);
  for (size_t r = 0; r < shown; ++r) text += RankLine(r, ranks[r]);
  if (shown < ranks.size()) {
    text += fmt::format(" ... and {} more ranks\n", ranks.size() - shown);
  }
  return text + SentBytesNote(report);
}

// Nothing where all ranks have one clock.
std::string ClockText(const std::vector<RankReport>& ranks) {
  int64_t offset_ns = 0, error_ns = 0;
  for (const RankReport& rank : ranks) {
    offset_ns = std::max(offset_ns, std::abs(rank.clock.offset_ns));
    error_ns = std::max(error_ns, rank.clock.error_ns);
  }
  if (error_ns == 0) return "";
  return fmt::format(
      "   clocks shifted to rank 0's by up to {:.3f} ms, known to within "
      "{:.3f} ms\n",
      static_cast<double>(offset_ns) / 1e6,
      static_cast<double>(error_ns) / 1e6);
}

std::string ProofText(const Proof& proof, const JobReport& report) {
  const bool needs_bits = report.has_rank_order;
  return fmt::format(
      "{} {}: the first {} steps again on one rank, the local batches in turn\n"
      "     plain libtorch on the whole batch: f32 differs by {:.1e}\n"
      "{} plain libtorch on the whole batch: f64 differs by {:.1e} (allowed "
      "{:.0e})\n",
      needs_bits ? (proof.has_equal_bits ? "PASS" : "FAIL") : "    ",
      needs_bits || proof.has_equal_bits
          ? "equal bits"
          : "different bits, as the backend's own order may give;\n    ",
      proof.steps, proof.f32_difference,
      proof.IsWithinTolerance() ? "PASS" : "FAIL", proof.f64_difference,
      kF64Tolerance);
}

}  // namespace

JobReport MakeReport(const JobOptions& options, int64_t context,
                     const JobResult& result) {
  const Recorder& first = result.recorders.at(0);
  const std::vector<double> step_ms =
      Milliseconds(Recorded(first, first.Records(), "step"));
  if (step_ms.empty()) throw collectives::Error("the job recorded no step");
  JobReport report;
  report.losses = result.losses;
  report.tokens_per_step = options.ranks * options.batch * context;
  report.recorded_steps = static_cast<int64_t>(step_ms.size());
  report.step_ms_median = Quantile(step_ms, 0.5);
  report.step_ms_p95 = Quantile(step_ms, 0.95);
  double total_ms = 0;
  for (double ms : step_ms) total_ms += ms;
  report.tokens_per_s = static_cast<double>(report.tokens_per_step) *
                        static_cast<double>(step_ms.size()) / total_ms * 1e3;
  report.outside_peak_bytes = result.outside_peak_bytes;
  report.parameter_hash = result.ranks[0].parameter_hash;
  report.is_in_sync = true;
  for (size_t r = 0; r < result.ranks.size(); ++r) {
    const RankSummary& rank = result.ranks[r];
    report.ranks.push_back(ReportRank(rank, result.recorders[r]));
    MemoryReport& memory = report.ranks.back().memory;
    memory = {std::nullopt, rank.memory, rank.peak, rank.saved_raw_bytes,
              rank.saved_distinct_bytes};
    if (options.ddp == "bucketed") {
      memory.budget = BudgetOf(options, context, static_cast<int>(r));
    }
    report.is_in_sync = report.is_in_sync &&
                        result.ranks[r].parameter_hash == report.parameter_hash;
  }
  report.parameters = result.ranks[0].parameter_bytes /
                      (options.precision == Precision::kF64 ? 8 : 4);
  return report;
}

bool HasPassed(const JobReport& report) {
  if (!report.is_in_sync || report.is_interrupted) return false;
  for (const RankReport& rank : report.ranks) {
    if (!rank.memory.IsAsBudgeted()) return false;
  }
  if (!report.proof) return true;
  return report.has_rank_order ? report.proof->HasPassed()
                               : report.proof->IsWithinTolerance();
}

std::string AsText(const JobOptions& options, const JobReport& report) {
  std::string text = fmt::format(
      "step time {:.1f} ms median, {:.1f} ms p95; {:.0f} tokens/s\n"
      "loss {:.4f} -> {:.4f} in {} steps\n\n",
      report.step_ms_median, report.step_ms_p95, report.tokens_per_s,
      report.losses.front(), report.losses.back(), report.losses.size());
  text += RankTable(report) + ClockText(report.ranks);
  if (report.recorded_steps < std::ssize(report.losses)) {
    text += fmt::format(
        "   times, counts and bytes of the last {} steps: older records were "
        "dropped\n",
        report.recorded_steps);
  }
  std::vector<MemoryReport> memory;
  for (const RankReport& rank : report.ranks) memory.push_back(rank.memory);
  text += "\n" + MemoryText(memory, report.outside_peak_bytes);
  text += fmt::format(
      "\nparameter hash {:016x}{}\n", report.parameter_hash,
      report.is_in_sync ? ", the same on all ranks" : " on rank 0 only");
  if (!report.is_in_sync) text += "FAIL the ranks' parameters differ\n";
  if (report.proof) text += ProofText(*report.proof, report);
  if (report.is_interrupted) {
    text += fmt::format("interrupted after {} of {} steps: nothing is proved\n",
                        report.losses.size(), options.steps);
  }
  return text;
}

}  // namespace trainsys
