#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "collectives/errors.h"
#include "tools/collective_bench/rows.h"

namespace trainsys {
namespace {

using json = nlohmann::ordered_json;

json OrNull(const std::optional<double>& value) {
  return value ? json(*value) : json(nullptr);
}

json Ratio(const std::optional<double>& above,
           const std::optional<double>& below) {
  if (!above || !below || *below <= 0) return nullptr;
  return *above / *below;
}

json AsJson(const Row& row) {
  const std::optional<double> ours = row.ours.median_us;
  const bool has_data = row.what.bytes > 0;
  const double GBps = static_cast<double>(row.what.bytes) / *ours / 1e3;
  return {{"op", Name(row.what.operation)},
          {"ranks", row.what.ranks},
          {"bytes", row.what.bytes},
          {"dtype", has_data ? json(Name(row.what.dtype)) : json(nullptr)},
          {"async", row.is_async},
          {"time_us", *ours},
          {"p10_us", row.ours.p10_us},
          {"p90_us", row.ours.p90_us},
          {"algorithm_GBps", GBps},
          {"bus_GBps", GBps * BusFactor(row.what)},
          {"floor_us", OrNull(row.floor_us)},
          {"floor_ratio", Ratio(ours, row.floor_us)},
          {"blocking_us", OrNull(row.blocking_us)},
          {"blocking_ratio", Ratio(ours, row.blocking_us)},
          {"gloo_us", OrNull(row.gloo_us())},
          {"gloo_ratio", Ratio(row.gloo_us(), ours)},
          {"gloo_threads_us", OrNull(row.gloo_threads_us)},
          {"gloo_processes_us", OrNull(row.gloo_processes_us)},
          {"mpi_us", OrNull(row.mpi_us)},
          {"mpi_ratio", Ratio(row.mpi_us, ours)}};
}

bool IsOf(const json& row, const Case& what) {
  return row.at("op") == Name(what.operation) &&
         row.at("ranks") == what.ranks && row.at("bytes") == what.bytes &&
         (what.bytes == 0 || row.at("dtype") == Name(what.dtype));
}

}  // namespace

std::string RowsJson(const Setting& setting, const std::vector<Row>& rows) {
  json list = json::array();
  for (const Row& row : rows) list.push_back(AsJson(row));
  return TextOf(ResultOf(setting, std::move(list)));
}

std::vector<double> MediansInJson(const std::string& text,
                                  const std::vector<Case>& cases) {
  try {
    const json all = json::parse(text);
    const json& rows = all.at("rows");
    std::vector<double> medians;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (!IsOf(rows.at(i), cases[i])) {
        throw collectives::Error("other cases than asked for");
      }
      medians.push_back(rows.at(i).at("time_us").get<double>());
    }
    return medians;
  } catch (const json::exception& error) {
    throw collectives::Error(error.what());
  }
}

}  // namespace trainsys
