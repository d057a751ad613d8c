// The table, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/collective_bench/rows.h"
#include "trainsys/measure/interleaved.h"
#include "tools/step_bench/bookkeeping.h"
#include "tools/step_bench/rungs.h"

namespace trainsys {

struct StepRow {
  StepCase what;
  StepTimes times;

  double Ms(Rung rung) const { return Median(times[rung]); }
  // Times the ideal, pair by pair.
  Quartiles OverIdeal(Rung rung) const;
  std::optional<double> PeerMs() const;
  // The peer's time over BucketedDDP's, pair by pair.
  std::optional<Quartiles> PeerOverBucketed() const;
};

// At most 100 columns, like all text here.
std::string StepLegendText();
std::string StepColumnsText();
std::string StepRowText(const StepRow& row);
std::string BookkeepingText(const StepCase& what, const Bookkeeping& costs);

// {"machine": ..., "rows": [{"model", "parameters", "ranks", "ideal_ms",
// "simple_ms", "simple_over_ideal", ..., "torch_ms", "torch_over_bucketed"}],
// "bookkeeping": {...}}; a ratio is {"p25", "median", "p75"}; null where
// something was not timed.
std::string StepJson(const Setting& setting, const std::vector<StepRow>& rows,
                     const Bookkeeping& costs);

}  // namespace trainsys
