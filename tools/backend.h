// Where a tool's ranks run: as threads of this process, as processes that it
// starts, or with this process as one rank that a launcher has started.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "collectives/c10d/world.h"
#include "collectives/run_ranks.h"
#include "trainsys/launch/environment.h"

namespace trainsys {

// As the user gave them.
struct BackendFlags {
  std::optional<std::string> backend;  // "threads", "gloo" or "nccl"
  bool is_native = false;              // Gloo's own all-reduce
  bool is_unmatched = false;           // calls are not compared
  std::optional<double> timeout_s;     // of every collective
  std::string host;                    // this host's address for the others
};

void AddBackendFlags(CLI::App& app, BackendFlags& flags);

// What flags and environment come to.
struct Placement {
  std::string backend = "threads";  // or "gloo" or "nccl"
  bool is_native = false;
  bool is_unmatched = false;
  std::optional<std::chrono::nanoseconds> timeout;
  std::string host;
  // This process's place among those that a launcher started.
  std::optional<collectives::World> world;

  // This process's accelerator, where the backend needs one.
  int device = collectives::kHostMemory;

  // The ranks are to be processes, and nobody has started them.
  bool MustLaunch() const { return backend != "threads" && !world; }
  // Sums are in rank order, with the bits of one rank.
  bool HasRankOrder() const { return !is_native && backend != "nccl"; }
  // This process prints and checks what one process is to.
  bool HasFirstRank() const { return !world || world->rank == 0; }
};

// `lookup`: of a launcher's variables.
// Errors: InvalidArgument where the flags contradict each other or the
// launcher, or name what this libtorch lacks.
Placement Place(const BackendFlags& flags, const Lookup& lookup);

// How many ranks a tool runs: what a launcher says, else what the user says,
// else `otherwise`. Errors: InvalidArgument where the first two differ.
int ChooseRanks(const Placement& placement, std::optional<int> asked,
                int otherwise);

// Errors: InvalidArgument where a launcher has started fewer than `needed`.
void RequireRanks(const Placement& placement, int needed);

// "threads", "processes over Gloo": what the ranks are.
std::string Describe(const Placement& placement);

// Not where MustLaunch().
std::unique_ptr<collectives::RankRunner> MakeRunner(const Placement& placement);

// Starts this program again as `ranks` processes of this machine, which meet in
// a store that this one serves, and forwards what they print.
// Result: the exit code: that of the first process that failed, or 0.
int Launch(int ranks, char** argv);

}  // namespace trainsys
