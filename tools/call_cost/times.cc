// Prints how long an all-reduce takes in this build of collectives/: one line
// of nanoseconds a case. Built twice, whole and bare, for bench_call_cost.
#include <fmt/core.h>

#include <chrono>
#include <span>
#include <vector>

#include "collectives/shm/run_ranks.h"
#include "tools/call_cost/cases.h"
#include "trainsys/measure/interleaved.h"

namespace trainsys {
namespace {

// The bare build has no clock reading to count a patience from: it counts from
// the machine's start, so this has to be longer than any machine runs.
constexpr std::chrono::hours kTimeout{24 * 365 * 100};

constexpr int kTurns = 300;
constexpr int kCalls = 300;

// Result: of each turn, for one call. Units: nanoseconds.
std::vector<double> TimeTurns(const CallCase& what,
                              collectives::Communicator& comm) {
  std::vector<double> ns;
  std::vector<float> data(what.elems, 0.F);
  for (int turn = 0; turn < kTurns; ++turn) {
    comm.Barrier("turn");
    const int64_t began_ns = collectives::NowNs();
    for (int i = 0; i < kCalls; ++i) {
      comm.AllReduce(collectives::AsBuffer(std::span(data)),
                     collectives::ReduceOp::kSum, "bench");
    }
    const int64_t took_ns = collectives::NowNs() - began_ns;
    ns.push_back(static_cast<double>(took_ns) / kCalls);
  }
  return ns;
}

// Of the quickest of many short turns.
double QuickestNs(const CallCase& what) {
  std::vector<double> ns;
  collectives::RunRanks({.ranks = what.ranks, .timeout = kTimeout},
                        [&](collectives::Communicator& comm) {
                          const auto mine = TimeTurns(what, comm);
                          if (comm.rank() == 0) ns = mine;
                        });
  return Quantile(ns, 0.1);
}

}  // namespace
}  // namespace trainsys

int main() {
  for (const trainsys::CallCase& what : trainsys::kCallCases) {
    fmt::print("{}\n", trainsys::QuickestNs(what));
  }
}
