// Four checks that the parts do what they are for, each on a small model and
// against two references: reference A, one rank that runs the local batches
// one after another (equal bits), and plain libtorch on the whole batch.
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/buffer.h"
#include "collectives/run_ranks.h"

namespace trainsys {

struct Parts;

// Breaks one thing on purpose, to show that the checks would notice.
enum class Fault {
  kNone,
  kNoAverage,         // gradients are summed
  kMissingAllGather,  // ZeRO's parameters are not gathered
  kLaunchAtEnd,       // all-reduces are posted when they are waited for
  kParamsSaved,       // recomputed segments keep their parameters
  kWaitInHook,        // each all-reduce is waited for inside backward
};

// "no-average" and so on; nothing for an unknown name.
std::optional<Fault> FaultNamed(std::string_view name);
std::vector<std::string> FaultNames();

struct CheckResult {
  std::string name;
  bool has_passed = false;
  // What was measured; of a check that has failed what was seen, what was
  // expected and, for a reader's part, where to read.
  std::vector<std::string> lines;
  std::map<std::string, double> figures;  // stable names; empty: none came
};

struct CheckOptions {
  CheckOptions(Fault fault = Fault::kNone) : fault(fault) {}

  Fault fault;
  // A reader's parts, or null for ours. Of theirs no equal bits are asked, and
  // which buckets there are is read off the records; their check of ZeRO-1 runs
  // over our BucketedDDP. Lifetime: outlives the checks.
  const Parts* mine = nullptr;
  // How long a collective may wait for its peers.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  // Where this process's models and data live: an accelerator's index.
  int device = collectives::kHostMemory;
  // The backend folds in rank order on the references' device; else nobody can
  // ask for equal bits.
  bool has_rank_order = true;
};

// How many ranks a runner must have for all of them.
inline constexpr int kCheckRanks = 4;

// Each runs its own ranks. Where ranks are processes, every process makes the
// same calls; where rank 0 does not run, a check passes without figures.
// Blocks for some seconds.
// Errors: RankFailed, where a rank throws.
CheckResult CheckBucketedDDP(const CheckOptions& options,
                             collectives::RankRunner& runner);
CheckResult CheckZeRO1(const CheckOptions& options,
                       collectives::RankRunner& runner);
CheckResult CheckRecomputation(const CheckOptions& options,
                               collectives::RankRunner& runner);
CheckResult CheckAllThree(const CheckOptions& options,
                          collectives::RankRunner& runner);

struct Check {
  const char* name;
  const char* name_of_mine;
  const char* reading;  // where a reader finds help
  CheckResult (*run)(const CheckOptions&, collectives::RankRunner&);
};

inline constexpr std::array<Check, 4> kChecks{{
    {"BucketedDDP, 2 ranks", "my BucketedDDP, 2 ranks", "docs/tutorial.md, 1",
     CheckBucketedDDP},
    {"ZeRO-1, 4 ranks", "my ZeRO-1, 4 ranks", "docs/tutorial.md, 2",
     CheckZeRO1},
    {"recomputation, 1 rank", "my checkpoint, 1 rank", "docs/tutorial.md, 3",
     CheckRecomputation},
    {"all three together, 2 ranks", "my three together, 2 ranks",
     "docs/tutorial.md, 4", CheckAllThree},
}};

// The same, with what is thrown as a check that has failed, and the names and
// lines of a reader's part.
CheckResult RunCheck(const Check& check, const CheckOptions& options,
                     collectives::RankRunner& runner);

}  // namespace trainsys
