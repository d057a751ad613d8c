// What a job did, as a table and as JSON. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainsys/proof/proof.h"
#include "trainsys/report/memory_text.h"
#include "trainsys/train/job.h"

namespace trainsys {

// Figures of one rank over the recorded steps: all of the job's or, where the
// recorder has dropped its oldest records, the last ones.
struct RankReport {
  RankSummary bytes;
  MemoryReport memory;
  int64_t num_steps = 0;
  int64_t num_posted_in_backward = 0;  // bucket reductions
  int64_t num_buckets = 0;             // bucket reductions in all
  int64_t sent_bytes_per_step = 0;     // by rule, mean over steps
  double waited_for_peers_ms = 0;      // a step, mean
  double waited_for_data_ms = 0;
  collectives::ClockEstimate clock;  // its times are in rank 0's clock
};

struct JobReport {
  std::string backend = "threads";  // that carried the ranks' collectives
  // The backend folds in rank order; else the proof need not find equal bits.
  bool has_rank_order = true;
  std::string blas;
  std::string data;
  int64_t parameters = 0;
  int64_t tokens_per_step = 0;
  int64_t recorded_steps = 0;  // rank 0's
  double step_ms_median = 0;
  double step_ms_p95 = 0;
  double tokens_per_s = 0;
  std::vector<double> losses;
  std::vector<RankReport> ranks;
  int64_t outside_peak_bytes = 0;  // of the process, outside ranks
  uint64_t parameter_hash = 0;     // of all ranks, if they agree
  bool is_in_sync = false;         // they do
  bool is_interrupted = false;     // before its last step, or in its proof
  std::optional<Proof> proof;
};

// Of the steps that were done. Errors: Error if there was none.
JobReport MakeReport(const JobOptions& options, int64_t context,
                     const JobResult& result);

// Not where it was interrupted: then something is not proved.
bool HasPassed(const JobReport& report);

// At most 80 columns. Bytes are rounded but for the table of memory; AsJson has
// all of them.
std::string AsText(const JobOptions& options, const JobReport& report);
std::string AsJson(const JobOptions& options, const JobReport& report);

}  // namespace trainsys
