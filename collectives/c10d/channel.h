// A channel between processes: a thread that matches and moves its calls, one
// after another.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/c10d/device_scope.h"
#include "collectives/c10d/exact_transport.h"
#include "collectives/c10d/matching.h"
#include "collectives/c10d/transport.h"
#include "collectives/c10d/verdict.h"
#include "collectives/call.h"
#include "collectives/rank/failure.h"
#include "collectives/rank/pending.h"
#include "collectives/sync/wait_word.h"

namespace collectives {

class C10dGroup;

// A call of this rank on its way through its channel.
//
//   rank's thread              channel's thread
//   -------------              ----------------
//   Channel::Post      ----->  open -> matched -> done
//                                  \-> failed <-/
//   stage, Await       <-----  Settle
class Entry final : public Pending {
 public:
  Entry(std::shared_ptr<C10dGroup> group,
        std::shared_ptr<const std::string> channel, uint64_t sequence,
        Call call);

  const Call& call() const { return call_; }
  Standing standing() const;
  // What the rank's device had to do before the call.
  const DeviceMark& mark() const { return mark_; }
  // Of a duplicate: proposed before, agreed on after.
  int64_t& channel_id() { return channel_id_; }

  Stage stage() const override { return stage_; }
  void Look(int64_t) override {}  // the channel's thread keeps the deadline
  void Await(int64_t since_ns) override;
  void Withdraw() override;
  void ThrowIfFailed() const override;
  int64_t matched_ns() const override { return matched_ns_; }
  int64_t done_ns() const override { return done_ns_; }

  // The channel's thread.
  void Match();
  void Finish();
  void Fail(Failure failure);

 private:
  std::shared_ptr<C10dGroup> group_;
  std::shared_ptr<const std::string> channel_;
  const uint64_t sequence_;
  Call call_;
  const DeviceMark mark_;
  int64_t channel_id_ = 0;
  // Written by the channel's thread, together with what follows before it.
  std::atomic<Stage> stage_{Stage::kOpen};
  int64_t matched_ns_ = 0;
  int64_t done_ns_ = 0;
  Failure failure_;
  WaitWord settled_;
};

class Channel {
 public:
  // Tags that the channel uses: its id times this, and on.
  static constexpr int kTags = 4;
  static constexpr int64_t kMaxChannels = (int64_t{1} << 31) / kTags - 1;

  // Lifetime: the group outlives it.
  Channel(C10dGroup& group, int64_t id);
  ~Channel();

  // The rank's thread. After Leave a call fails at once.
  void Post(std::shared_ptr<Entry> entry);
  // No more calls: the thread ends once all ranks have left, or the group has
  // failed. May be called again.
  void Leave();
  void Join();

 private:
  void Run();
  void Process(Entry& entry);
  Transport& transport();
  void MatchAndMove(Entry& entry);
  void SayGoodbye();

  C10dGroup& group_;
  const int64_t id_;
  Matching matching_;
  ExactTransport exact_;
  // The library's, if the group uses one: made by the thread.
  std::unique_ptr<Transport> library_;
  int left_ = -1;  // a peer that makes no more calls here

  std::mutex mutex_;
  std::condition_variable has_more_;
  std::deque<std::shared_ptr<Entry>> queue_;  // null: leave
  bool has_left_ = false;                     // under the mutex
  std::thread thread_;                        // last: uses all above
};

}  // namespace collectives
