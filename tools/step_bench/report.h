// The table, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/setting.h"
#include "tools/step_bench/bookkeeping.h"
#include "tools/step_bench/rungs.h"
#include "trainsys/measure/interleaved.h"

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

// At most 80 columns, like all text here.
std::string StepLegendText();
std::string StepColumnsText();
std::string StepRowText(const StepRow& row);
std::string BookkeepingText(const StepCase& what, const Bookkeeping& costs);

// docs/json.md has the names. `costs`: nothing where they were not measured.
std::string StepJson(const Setting& setting, const std::vector<StepRow>& rows,
                     const std::optional<Bookkeeping>& costs);

}  // namespace trainsys
