#include "trainsys/report/memory_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "trainsys/terminal/units.h"

namespace trainsys {
namespace {

constexpr StepPoint kShown = StepPoint::kAfterForward;

std::string Line(std::string_view name, std::optional<int64_t> budget,
                 int64_t ledger, int64_t peak) {
  const std::string difference =
      budget ? std::to_string(ledger - *budget) : "-";
  return fmt::format("  {:<16} {:>13} {:>13} {:>11} {:>13}\n", name,
                     budget ? std::to_string(*budget) : "-", ledger, difference,
                     peak);
}

std::string Table(const MemoryReport& rank) {
  const auto budget = [&rank](MemoryCategory c) -> std::optional<int64_t> {
    if (!rank.budget) return std::nullopt;
    return (*rank.budget)[kShown][c];
  };
  const MemorySplit& ledger = rank.ledger[kShown];
  const MemorySplit& peak = rank.peak.split;
  std::string text =
      fmt::format("{:<18} {:>13} {:>13} {:>11} {:>13}\n", "memory of rank 0",
                  "budget", "ledger", "difference", "ledger");
  text += fmt::format("{:<18} {:>13} {:>13} {:>11} {:>13}\n", "bytes",
                      Name(kShown), "", "", "at its peak");
  for (MemoryCategory c : kMemoryCategories) {
    if (budget(c).value_or(0) == 0 && ledger[c] == 0 && peak[c] == 0) continue;
    text += Line(Name(c), budget(c), ledger[c], peak[c]);
  }
  std::optional<int64_t> total;
  if (rank.budget) total = (*rank.budget)[kShown].Total();
  return text + Line("total", total, ledger.Total(), peak.Total());
}

// "after forward of rank 2: activations 4096 instead of 4000"; empty if none.
std::string FirstDifference(const std::vector<MemoryReport>& ranks) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].budget) continue;
    for (StepPoint point : kStepPoints) {
      for (MemoryCategory c : kMemoryCategories) {
        const int64_t budget = (*ranks[r].budget)[point][c];
        const int64_t ledger = ranks[r].ledger[point][c];
        if (budget == ledger) continue;
        return fmt::format("rank {} {}: {} take {}, the budget says {}", r,
                           Name(point), Name(c), ledger, budget);
      }
    }
  }
  return "";
}

}  // namespace

std::string MemoryText(const std::vector<MemoryReport>& ranks,
                       int64_t outside_peak_bytes) {
  std::string text = Table(ranks.at(0));
  int64_t peaks = 0;
  for (const MemoryReport& rank : ranks) peaks += rank.peak.bytes;
  text += fmt::format(
      "  saved for backward: {} raw, {} distinct without parameters\n"
      "  host: at most {}, all peaks together, of which {} are no rank's\n",
      ranks[0].saved_raw_bytes, ranks[0].saved_distinct_bytes,
      BytesText(peaks + outside_peak_bytes), BytesText(outside_peak_bytes));
  if (!ranks[0].budget) {
    return text + "     memory: the budget is that of buckets; not compared\n";
  }
  const std::string difference = FirstDifference(ranks);
  if (!difference.empty()) {
    return text + "FAIL memory is not as budgeted:\n     " + difference + "\n";
  }
  return text + fmt::format(
                    "PASS memory: budget = ledger to the byte, {} categories x "
                    "{} points x {} rank{}\n",
                    kMemoryCategories.size(), kStepPoints.size(), ranks.size(),
                    ranks.size() == 1 ? "" : "s");
}

}  // namespace trainsys
