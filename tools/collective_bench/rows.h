// The table, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/collective_bench/cases.h"
#include "tools/collective_bench/interleave.h"
#include "tools/setting.h"

namespace trainsys {

// One line: ours, and what it is compared with where that was timed. The peers'
// calls are blocking ones.
struct Row {
  Case what;
  bool is_async = false;
  Times ours;
  std::optional<double> floor_us;
  std::optional<double> gloo_threads_us;
  std::optional<double> gloo_processes_us;
  std::optional<double> mpi_us;
  std::optional<double> blocking_us;  // ours, of an asynchronous row

  // The quicker one.
  std::optional<double> gloo_us() const;
};

// At most 80 columns, like all text here.
std::string LegendText();

// The rows of one number of ranks, by operation.
std::string RowsText(const std::vector<Row>& rows);

// docs/json.md has the names. floor_ratio is how many times the floor's time
// ours is; the peers' ratios are how many times ours theirs is.
std::string RowsJson(const Setting& setting, const std::vector<Row>& rows);

// The median time of each case, in order, as RowsJson has written them.
// Errors: Error for other cases or no such JSON.
std::vector<double> MediansInJson(const std::string& json,
                                  const std::vector<Case>& cases);

}  // namespace trainsys
