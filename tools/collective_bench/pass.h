// Times the cases of one number of ranks on one backend.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "collectives/run_ranks.h"
#include "tools/collective_bench/cases.h"
#include "tools/collective_bench/interleave.h"

namespace trainsys {

// What one case took. Nothing where it was not timed.
struct Timed {
  std::optional<Times> blocking;
  std::optional<Times> async;
  std::optional<Times> floor;
};

struct PassOptions {
  std::vector<bool> is_async;  // which kinds of calls
  // Ranks are threads of this process, and the floor is timed with them.
  bool has_floor = false;
  Pace pace;
  std::function<void(size_t)> on_case;  // of the index, on rank 0; may be empty
};

struct Pass {
  // One for each case where rank 0 ran; else none. Fewer if interrupted.
  std::vector<Timed> timed;
  int signal = 0;  // that stopped it, the same on every rank
};

// Result: the times. Between two cases the ranks agree whether to go on.
// Memory: each rank has one buffer of the largest case.
// Errors: RankFailed.
Pass RunPass(collectives::RankRunner& runner, const std::vector<Case>& cases,
             const PassOptions& options);

}  // namespace trainsys
