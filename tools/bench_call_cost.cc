// What records, matching and failure checks add to a collective: a program
// against the same one built without them.
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "collectives/errors.h"
#include "tools/call_cost/cases.h"
#include "tools/output_file.h"
#include "tools/parse.h"
#include "tools/run_bench.h"
#include "tools/setting.h"
#include "trainsys/measure/interleaved.h"
#include "trainsys/terminal/interrupt.h"
#include "trainsys/terminal/progress.h"

namespace trainsys {
namespace {

using nlohmann::ordered_json;

constexpr char kDescription[] =
    "Times all-reduces with and without records, matching and failure checks,\n"
    "in processes that take turns.\n\n"
    "Example: bench_call_cost --turns 20";

// What `program` prints. Errors: InvalidArgument if it cannot be run.
std::vector<double> TimesOf(const std::string& program) {
  const auto refuse = [&program] {
    ThrowIfInterrupted();  // a Ctrl-C ends it, too
    throw collectives::InvalidArgument(
        "cannot run " + program +
        ": expected it beside this program; build //tools:bench_call_cost");
  };
  if (access(program.c_str(), X_OK) != 0) refuse();
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen(("'" + program + "'").c_str(), "r"), pclose);
  std::vector<double> times(kCallCases.size());
  for (double& time : times) {
    if (!pipe || std::fscanf(pipe.get(), "%lf", &time) != 1) refuse();
  }
  return times;
}

class Bench {
 public:
  // `program`: this one's path. Lifetime: `setting` outlives it.
  Bench(std::string program, const Setting& setting)
      : program_(std::move(program)), setting_(setting) {}

  void Run(int turns) {
    try {
      for (int turn = 0; turn < turns; ++turn) {
        ThrowIfInterrupted();
        progress_.Show("turns", turn, turns);
        const std::vector<double> whole = TimesOf(program_ + "_whole");
        const std::vector<double> bare = TimesOf(program_ + "_bare");
        for (size_t i = 0; i < kCallCases.size(); ++i) {
          whole_[i].push_back(whole[i]);
          bare_[i].push_back(bare[i]);
        }
      }
    } catch (const Interrupted&) {
      Print();
      throw;
    }
    Print();
  }

  std::string Json() const {
    ordered_json rows = ordered_json::array();
    for (size_t i = 0; i < kCallCases.size() && Turns() > 0; ++i) {
      const double whole = Median(whole_[i]), bare = Median(bare_[i]);
      rows.push_back({{"ranks", kCallCases[i].ranks},
                      {"bytes", 4 * kCallCases[i].elems},
                      {"turns", Turns()},
                      {"whole_ns", whole},
                      {"bare_ns", bare},
                      {"added_ns", whole - bare},
                      {"added_percent", 100 * (whole / bare - 1)}});
    }
    return TextOf(ResultOf(setting_, std::move(rows)));
  }

 private:
  size_t Turns() const { return bare_.back().size(); }

  void Print() {
    progress_.Clear();
    if (Turns() == 0) return;
    fmt::print("{}all-reduce, ns a call, median of {} turns\n\n",
               HeaderText(setting_), Turns());
    fmt::print("{:<16} {:>8} {:>8} {:>8}\n", "", "whole", "bare", "added");
    for (size_t i = 0; i < kCallCases.size(); ++i) {
      const double with = Median(whole_[i]), without = Median(bare_[i]);
      fmt::print("{:<16} {:>8.0f} {:>8.0f} {:>8.0f}  {:+.1f} %\n",
                 kCallCases[i].name, with, without, with - without,
                 100 * (with / without - 1));
    }
  }

  const std::string program_;
  const Setting& setting_;
  Progress progress_;
  // Units: nanoseconds, of each turn, by case.
  std::array<std::vector<double>, kCallCases.size()> whole_, bare_;
};

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  using namespace trainsys;
  CLI::App app(kDescription, "bench_call_cost");
  int turns = 10;
  std::string path;
  app.add_option("--turns", turns, "turns of each program")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", path, "write all figures to this file");
  if (const auto code = Parse(app, argc, argv)) return *code;
  return Main(app, [&] {
    OutputFile json("--json", path);
    Setting setting = SettingHere("bench_call_cost", "threads");
    Bench bench(argv[0], setting);
    RunAndWrite([&] { bench.Run(turns); }, setting, json,
                [&] { return bench.Json(); });
    return 0;
  });
}
