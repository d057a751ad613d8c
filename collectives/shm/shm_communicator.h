// Communicator over threads of one process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "collectives/rank/rank_state.h"
#include "collectives/rank/rank_work.h"
#include "collectives/shm/shm_channel.h"
#include "collectives/shm/shm_group.h"

namespace collectives {

// What a rank has of a channel; its calls in flight keep it alive.
struct RankChannel {
  std::shared_ptr<ShmGroup> group;
  std::shared_ptr<RankState> state;
  std::shared_ptr<ShmChannel> channel;
};

// See Communicator for the contract. Made by RunRanks and Duplicate.
class ShmCommunicator final : public Communicator {
 public:
  explicit ShmCommunicator(RankChannel mine)
      : mine_(std::make_shared<const RankChannel>(std::move(mine))),
        name_(std::make_shared<const std::string>(mine_->channel->name)),
        cursor_(&mine_->channel->rounds.first()) {}

  ~ShmCommunicator() override { mine_->channel->rounds.Leave(*cursor_); }

  int rank() const override { return mine_->state->rank(); }
  int ranks() const override { return mine_->group->ranks(); }
  const std::string& channel() const override { return *name_; }
  Recorder& recorder() override { return mine_->state->recorder(); }
  std::unique_ptr<Communicator> Duplicate(std::string_view name) override;
  Work Post(Call call) override;

 private:
  // `kept`, if given: holds the round, too.
  std::unique_ptr<RankWork> PostRound(Call&& call, RoundRef* kept = nullptr);
  void TakeTurn(Call&& call, int64_t posted_ns) noexcept;

  std::shared_ptr<const RankChannel> mine_;
  std::shared_ptr<const std::string> name_;
  Round* cursor_;  // this rank's next round, which it holds
};

}  // namespace collectives
