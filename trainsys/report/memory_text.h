// A job's memory: budget beside ledger, as a table. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainsys/memory/ledger.h"
#include "trainsys/memory/step_memory.h"

namespace trainsys {

// Of one rank.
struct MemoryReport {
  StepMemory budget;
  StepMemory ledger;
  MemoryPeak peak;
  int64_t saved_raw_bytes = 0;
  int64_t saved_distinct_bytes = 0;

  bool IsAsBudgeted() const { return budget == ledger; }
};

// The first rank after forward, where most is known, and at its peak; then
// whether every rank is as budgeted at every point, and what differs if not.
std::string MemoryText(const std::vector<MemoryReport>& ranks);

}  // namespace trainsys
