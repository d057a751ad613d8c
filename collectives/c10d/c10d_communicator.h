// Communicator over a group of processes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/c10d/group.h"
#include "collectives/communicator.h"
#include "collectives/rank/rank_state.h"
#include "collectives/rank/rank_work.h"

namespace collectives {

// See Communicator for the contract, and docs/real_runs.md for what differs
// from ranks as threads: any failure but a mismatch ends the group.
class C10dCommunicator final : public Communicator {
 public:
  // The group's first channel.
  C10dCommunicator(std::shared_ptr<C10dGroup> group,
                   std::shared_ptr<RankState> state)
      : C10dCommunicator(std::move(group), std::move(state), "main", 0) {}

  int rank() const override { return group_->rank(); }
  int ranks() const override { return group_->ranks(); }
  const std::string& channel() const override { return *channel_; }
  Recorder& recorder() override { return state_->recorder(); }
  std::unique_ptr<Communicator> Duplicate(std::string_view name) override;
  Work Post(Call call) override;

 private:
  C10dCommunicator(std::shared_ptr<C10dGroup> group,
                   std::shared_ptr<RankState> state, std::string channel,
                   int64_t id)
      : group_(std::move(group)),
        state_(std::move(state)),
        channel_(std::make_shared<const std::string>(std::move(channel))),
        line_(group_->Open(id)) {}

  // The posted call, and the rank's hold on it.
  std::pair<std::shared_ptr<Entry>, std::unique_ptr<RankWork>> PostEntry(
      Call call);

  std::shared_ptr<C10dGroup> group_;
  std::shared_ptr<RankState> state_;
  std::shared_ptr<const std::string> channel_;
  std::shared_ptr<Channel> line_;
  uint64_t next_sequence_ = 0;
};

}  // namespace collectives
