// What records, matching and failure checks add to a collective: this program
// against itself built without them (bench_call_cost_bare).
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/bare.h"
#include "collectives/errors.h"
#include "collectives/shm/run_ranks.h"
#include "trainsys/measure/interleaved.h"
#include "tools/parse.h"

namespace trainsys {
namespace {

constexpr char kDescription[] =
    "Times all-reduces with and without records, matching and failure checks,\n"
    "in processes that take turns.\n\n"
    "Example: bench_call_cost --turns 20";

struct CallCase {
  int ranks;
  size_t elems;  // f32
  const char* name;
};

constexpr std::array<CallCase, 3> kCases{{{1, 1, "1 rank, 4 B"},
                                          {2, 1, "2 ranks, 4 B"},
                                          {2, 4096, "2 ranks, 16 KiB"}}};

// Of the quickest of many short turns, for one call. Units: nanoseconds.
double QuickestNs(const CallCase& what) {
  constexpr int kTurns = 300;
  constexpr int kCalls = 300;
  std::vector<double> ns;
  collectives::RunRanks(
      {.ranks = what.ranks}, [&](collectives::Communicator& comm) {
        std::vector<float> data(what.elems, 0.F);
        for (int turn = 0; turn < kTurns; ++turn) {
          comm.Barrier("turn");
          const int64_t began_ns = collectives::NowNs();
          for (int i = 0; i < kCalls; ++i) {
            comm.AllReduce(collectives::AsBuffer(std::span(data)),
                           collectives::ReduceOp::kSum, "bench");
          }
          const auto took = collectives::NowNs() - began_ns;
          if (comm.rank() == 0)
            ns.push_back(static_cast<double>(took) / kCalls);
        }
      });
  return Quantile(ns, 0.1);
}

void PrintTimes() {
  for (const CallCase& what : kCases) fmt::print("{}\n", QuickestNs(what));
}

// What `program --one` prints. Errors: InvalidArgument if it cannot be run.
std::vector<double> TimesOf(const std::string& program) {
  const auto refuse = [&program] {
    throw collectives::InvalidArgument(
        "cannot run " + program +
        ": expected it beside this program; build //tools:bench_call_cost");
  };
  if (access(program.c_str(), X_OK) != 0) refuse();
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen(("'" + program + "' --one").c_str(), "r"), pclose);
  std::vector<double> times(kCases.size());
  for (double& time : times) {
    if (!pipe || std::fscanf(pipe.get(), "%lf", &time) != 1) refuse();
  }
  return times;
}

int Compare(const std::string& program, int turns) {
  std::vector<std::vector<double>> whole(kCases.size()), bare(kCases.size());
  for (int turn = 0; turn < turns; ++turn) {
    const std::vector<double> times = TimesOf(program);
    const std::vector<double> bare_times = TimesOf(program + "_bare");
    for (size_t i = 0; i < kCases.size(); ++i) {
      whole[i].push_back(times[i]);
      bare[i].push_back(bare_times[i]);
    }
  }
  fmt::print("all-reduce, ns a call, median of {} turns\n\n", turns);
  fmt::print("{:<16} {:>8} {:>8} {:>8}\n", "", "whole", "bare", "added");
  for (size_t i = 0; i < kCases.size(); ++i) {
    const double with = Median(whole[i]), without = Median(bare[i]);
    fmt::print("{:<16} {:>8.0f} {:>8.0f} {:>8.0f}  {:+.1f} %\n", kCases[i].name,
               with, without, with - without, 100 * (with / without - 1));
  }
  return 0;
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  using namespace trainsys;
  CLI::App app(kDescription, "bench_call_cost");
  int turns = 10;
  bool is_one = false;
  app.add_option("--turns", turns, "turns of each program")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--one", is_one, "print this program's times only");
  if (const auto code = Parse(app, argc, argv)) return *code;
  return Main(app, [&] {
    if (!is_one) return Compare(argv[0], turns);
    PrintTimes();
    return 0;
  });
}
