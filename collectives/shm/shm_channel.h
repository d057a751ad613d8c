// What the ranks of one channel share: its rounds.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "collectives/shm/round.h"
#include "collectives/sync/chain.h"

namespace collectives {

struct ShmChannel {
  ShmChannel(std::string channel_name, int ranks)
      : name(std::move(channel_name)), rounds(ranks) {}

  const std::string name;
  Chain<Round> rounds;
};

// Holds a round, and with it the channel, for a thread that is no rank or a
// rank that is past it. Threads: each has one owner.
class RoundRef {
 public:
  RoundRef() = default;
  // The caller holds the round.
  RoundRef(std::shared_ptr<ShmChannel> channel, Round& round)
      : channel_(std::move(channel)), round_(&round) {
    channel_->rounds.Hold(round);
  }
  RoundRef(const RoundRef& other)
      : channel_(other.channel_), round_(other.round_) {
    if (round_) channel_->rounds.Hold(*round_);
  }
  RoundRef(RoundRef&& other) noexcept
      : channel_(std::move(other.channel_)),
        round_(std::exchange(other.round_, nullptr)) {}
  RoundRef& operator=(RoundRef other) noexcept {
    std::swap(channel_, other.channel_);
    std::swap(round_, other.round_);
    return *this;
  }
  ~RoundRef() {
    if (round_) channel_->rounds.Release(*round_);
  }

  Round* operator->() const { return round_; }

 private:
  std::shared_ptr<ShmChannel> channel_;
  Round* round_ = nullptr;
};

}  // namespace collectives
