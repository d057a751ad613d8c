// Four checks that the parts do what they are for, each on a small model and
// against two references: reference A, one rank that runs the local batches
// one after another (equal bits), and plain libtorch on the whole batch.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/buffer.h"
#include "collectives/run_ranks.h"

namespace trainsys {

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
  std::string figures;  // one line
};

struct CheckOptions {
  CheckOptions(Fault fault = Fault::kNone) : fault(fault) {}

  Fault fault;
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

}  // namespace trainsys
