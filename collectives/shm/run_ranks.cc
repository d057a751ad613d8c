#include "collectives/shm/run_ranks.h"

#include <memory>
#include <utility>

#include "collectives/rank/rank_state.h"
#include "collectives/rank/rank_threads.h"
#include "collectives/shm/shm_communicator.h"
#include "collectives/shm/shm_group.h"

namespace collectives {

std::vector<Recorder> RunRanks(const RunRanksOptions& options,
                               const RankFunction& fn) {
  Validate(options, fn);
  const auto group = std::make_shared<ShmGroup>(options.ranks, options.timeout);
  auto channel = std::make_shared<ShmChannel>("main", options.ranks);
  std::vector<std::shared_ptr<RankState>> states;
  for (int r = 0; r < options.ranks; ++r) {
    states.push_back(std::make_shared<RankState>(r, options.record_capacity));
  }
  const auto run = [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    ShmCommunicator comm({group, states[r], channel});
    fn(comm);
  };
  const auto on_failure = [&](const FailureCause& cause) {
    group->abort().Set(cause);
  };
  const auto on_end = [&](int rank) {
    group->Leave(rank);
    states[static_cast<size_t>(rank)]->ForgetContinuations();
  };
  RunThreads({options.ranks, run, on_failure, on_end});
  std::vector<Recorder> recorders;
  for (const auto& state : states) {
    // What still calls after its end finds a recorder that keeps nothing.
    recorders.push_back(
        std::exchange(state->recorder(), Recorder(state->rank(), 0)));
  }
  return recorders;
}

}  // namespace collectives
