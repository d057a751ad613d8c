#include "collectives/run_ranks.h"

#include <string>

#include "collectives/errors.h"

namespace collectives {

void Validate(const RunRanksOptions& options, const RankFunction& fn) {
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    throw InvalidArgument("ranks is " + std::to_string(options.ranks) +
                          ", expected 1 to " + std::to_string(kMaxRanks));
  }
  if (options.timeout <= std::chrono::nanoseconds(0)) {
    throw InvalidArgument("timeout is 0 or negative, expected a positive time");
  }
  if (!fn) throw InvalidArgument("the function to run on each rank is empty");
}

}  // namespace collectives
