// A job's memory: budget beside ledger, as a table. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainsys/memory/ledger.h"
#include "trainsys/memory/step_memory.h"

namespace trainsys {

// Of one rank.
struct MemoryReport {
  std::optional<StepMemory> budget;  // where there is one for the job
  StepMemory ledger;
  MemoryPeak peak;
  int64_t saved_raw_bytes = 0;
  int64_t saved_distinct_bytes = 0;

  bool IsAsBudgeted() const { return !budget || *budget == ledger; }
};

// The first rank after forward, where most is known, and at its peak; then
// the most that all together can have held, with the process's own bytes; and
// whether every rank is as budgeted at every point, or what differs.
std::string MemoryText(const std::vector<MemoryReport>& ranks,
                       int64_t outside_peak_bytes);

}  // namespace trainsys
