#include "collectives/c10d/run_rank.h"

#include <exception>

#include "collectives/c10d/c10d_communicator.h"
#include "collectives/c10d/gather_records.h"
#include "collectives/errors.h"
#include "collectives/rank/rank_state.h"
#include "collectives/rank/rank_threads.h"

namespace collectives {
namespace {

void RunFunction(const std::shared_ptr<C10dGroup>& group,
                 const std::shared_ptr<RankState>& state,
                 const RankFunction& fn) {
  C10dCommunicator comm(group, state);
  try {
    fn(comm);
  } catch (...) {
    group->Fail(CauseOf(group->rank(), std::current_exception()));
    throw;
  }
}

}  // namespace

std::vector<Recorder> RunAsRank(const std::shared_ptr<Store>& store,
                                const C10dGroup::Settings& settings,
                                size_t record_capacity,
                                const RankFunction& fn) {
  const auto group = std::make_shared<C10dGroup>(store, settings);
  const auto state =
      std::make_shared<RankState>(settings.rank, record_capacity);
  const struct AtEnd {
    C10dGroup& group;
    RankState& state;
    ~AtEnd() {
      state.ForgetContinuations();
      group.Leave();
    }
  } at_end{*group, *state};
  RunFunction(group, state, fn);
  group->Leave();
  group->ThrowIfFailed();
  try {
    return GatherRecords(group->mesh(), state->recorder(),
                         group->leaving_timeout());
  } catch (const LinkError& e) {
    group->Explain(e, {"", 0, "gathering records"});
    group->ThrowIfFailed();
    throw;
  }
}

}  // namespace collectives
