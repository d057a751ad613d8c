// Communicator over threads of one process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "collectives/shm/rank_state.h"
#include "collectives/shm/round.h"

namespace collectives {

class ShmWork;

// See Communicator for the contract. Takes no locks on the path of a blocking
// collective. Made by RunRanks and Duplicate.
class ShmCommunicator final : public Communicator {
 public:
  // `head`: the round before the channel's first, the same for every rank.
  ShmCommunicator(std::shared_ptr<RankState> state, std::string channel,
                  RoundRef head)
      : state_(std::move(state)),
        channel_(std::make_shared<const std::string>(std::move(channel))),
        cursor_(std::move(head)) {}

  int rank() const override { return state_->rank(); }
  int ranks() const override { return state_->group().ranks; }
  const std::string& channel() const override { return *channel_; }
  Recorder& recorder() override { return state_->recorder(); }
  std::unique_ptr<Communicator> Duplicate(std::string_view name) override;
  Work Post(Call call) override;

 private:
  std::unique_ptr<ShmWork> PostRound(Call call);

  std::shared_ptr<RankState> state_;
  std::shared_ptr<const std::string> channel_;
  RoundRef cursor_;  // the round this rank posted last
};

}  // namespace collectives
