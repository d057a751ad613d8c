// What figures were measured with, and the JSON of every bench.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace trainsys {

struct Setting {
  std::string tool;     // "bench_step"
  std::string backend;  // of the ranks: "threads", "processes over Gloo", ...
                        // Empty: no ranks.
  std::string machine;
  int cores = 0;
  std::string date;
  std::vector<std::pair<std::string, std::string>> versions;
  std::vector<std::string> notes;  // what could not be measured, and why
  bool is_interrupted = false;     // rows are missing
};

// Machine, cores, date and the versions that the compiler knows.
Setting SettingHere(const std::string& tool, const std::string& backend = "");

// Machine, cores, date and versions, in lines of at most 80 columns; without
// the notes. What alone is longer is cut.
std::string HeaderText(const Setting& setting);

// {"tool", "backend", "machine", "cores", "date", "versions": {...},
// "notes": [...], "interrupted", "rows": [...]}. What is not UTF-8, as paths
// may be, is replaced when it is written.
nlohmann::ordered_json ResultOf(const Setting& setting,
                                nlohmann::ordered_json rows);

// As a file holds it.
std::string TextOf(const nlohmann::ordered_json& result);

}  // namespace trainsys
