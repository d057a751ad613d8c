// Communicator over threads of one process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "collectives/rank/rank_state.h"
#include "collectives/rank/rank_work.h"
#include "collectives/shm/round.h"
#include "collectives/shm/shm_group.h"

namespace collectives {

// See Communicator for the contract. Takes no locks on the path of a blocking
// collective. Made by RunRanks and Duplicate.
class ShmCommunicator final : public Communicator {
 public:
  // `head`: the round before the channel's first, the same for every rank.
  ShmCommunicator(std::shared_ptr<ShmGroup> group,
                  std::shared_ptr<RankState> state, std::string channel,
                  RoundRef head)
      : group_(std::move(group)),
        state_(std::move(state)),
        channel_(std::make_shared<const std::string>(std::move(channel))),
        cursor_(std::move(head)) {}

  int rank() const override { return state_->rank(); }
  int ranks() const override { return group_->ranks(); }
  const std::string& channel() const override { return *channel_; }
  Recorder& recorder() override { return state_->recorder(); }
  std::unique_ptr<Communicator> Duplicate(std::string_view name) override;
  Work Post(Call call) override;

 private:
  std::unique_ptr<RankWork> PostRound(Call call);

  std::shared_ptr<ShmGroup> group_;
  std::shared_ptr<RankState> state_;
  std::shared_ptr<const std::string> channel_;
  RoundRef cursor_;  // the round this rank posted last
};

}  // namespace collectives
