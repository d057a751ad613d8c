// The Work of a rank, whatever the backend: waits, records, runs what was to
// run when it is done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "collectives/call.h"
#include "collectives/rank/pending.h"
#include "collectives/rank/rank_state.h"
#include "collectives/work.h"

namespace collectives {

// Where a call stands among its rank's: the channel, and which of its calls.
struct Position {
  std::shared_ptr<const std::string> channel;  // its address identifies it
  uint64_t sequence = 0;
};

class RankWork final : public Work::State {
 public:
  // Adds the record of `call`. Under a CallerGuard.
  RankWork(std::shared_ptr<RankState> state, Position position,
           const Call& call, int ranks);
  ~RankWork() override;

  // Once, before anything else.
  void Attach(std::shared_ptr<Pending> pending) {
    pending_ = std::move(pending);
  }

  int64_t posted_ns() const { return posted_ns_; }

  bool IsDone() override;
  void Wait() override;
  void OnDone(std::function<void()> fn) override;

 private:
  void Withdraw();
  void Settle(bool began_when_posted);
  void ThrowIfFailed() const;
  void WriteRecord(int64_t began_ns, int64_t ended_ns);

  std::shared_ptr<RankState> state_;
  Position position_;
  // Let go once it is done and recorded: it may hold much.
  std::shared_ptr<Pending> pending_;
  bool waits_from_post_;  // blocking, and nothing has come in between
  const int64_t posted_ns_;
  const uint64_t record_;
  const int exceptions_;  // that unwound when it was posted
  int64_t first_look_ns_ = 0;
  bool is_recorded_ = false;
};

}  // namespace collectives
