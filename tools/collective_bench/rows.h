// The table, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/collective_bench/cases.h"
#include "tools/collective_bench/interleave.h"

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

// What the figures were measured with.
struct Setting {
  std::string backend;  // "threads", "processes over Gloo", ...
  std::string machine;
  int cores = 0;
  std::string date;
  std::vector<std::pair<std::string, std::string>> versions;
  std::vector<std::string> notes;  // what could not be measured, and why
};

// Machine, cores, date and the versions that the compiler knows.
Setting SettingHere(const std::string& backend);

// At most 100 columns, like all text here; without the notes.
std::string HeaderText(const Setting& setting);
std::string LegendText();

// The rows of one number of ranks, by operation.
std::string RowsText(const std::vector<Row>& rows);

// {"machine": ..., "rows": [{"op", "ranks", "bytes", "dtype", "async",
// "time_us", "p10_us", "p90_us", "floor_us", "floor_ratio", "gloo_us",
// "gloo_ratio", ...}]}; null where something was not timed. floor_ratio is how
// many times the floor's time ours is; the peers' ratios are how many times
// ours theirs is.
std::string RowsJson(const Setting& setting, const std::vector<Row>& rows);

// The median time of each case, in order, as RowsJson has written them.
// Errors: Error for other cases or no such JSON.
std::vector<double> MediansInJson(const std::string& json,
                                  const std::vector<Case>& cases);

}  // namespace trainsys
