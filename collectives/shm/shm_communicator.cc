#include "collectives/shm/shm_communicator.h"

#include <exception>
#include <utility>
#include <vector>

#include "collectives/errors.h"
#include "collectives/record/clock.h"
#include "collectives/shm/workers.h"

namespace collectives {

// One rank's part of a round. The round is let go once it is done: it holds
// all the rounds that follow.
class ShmWork final : public Work::State {
 public:
  ShmWork(std::shared_ptr<RankState> state,
          std::shared_ptr<const std::string> channel, RoundRef round,
          uint64_t record)
      : state_(std::move(state)),
        channel_(std::move(channel)),
        round_(std::move(round)),
        sequence_(round_->sequence()),
        record_(record),
        exceptions_(std::uncaught_exceptions()) {}

  ~ShmWork() override {
    if (std::uncaught_exceptions() > exceptions_) Withdraw();
    if (is_recorded_) return;
    const int64_t began_ns = NowNs();
    state_->Await(*round_);
    try {
      const CallerGuard guard(*state_);
      WriteRecord(began_ns);
    } catch (const InvalidArgument&) {
      // A second caller of the rank: its own call throws, here a record stays
      // "posted".
    }
  }

  bool IsDone() override {
    if (first_look_ns_ == 0) first_look_ns_ = NowNs();
    return !round_ || state_->Poll(*round_, first_look_ns_);
  }

  void Wait() override {
    state_->RunContinuations();
    Settle();
    if (round_) state_->ThrowIfFailed(*round_, *channel_);
    state_->RunContinuations();
  }

  void OnDone(std::function<void()> fn) override {
    const CallerGuard guard(*state_);
    state_->continuations().Add(
        {channel_.get(), sequence_, round_, std::move(fn)});
  }

 private:
  // What an exception unwinds, the peers need not wait for, and what this work
  // would have run may refer to what is gone.
  void Withdraw() {
    if (round_) {
      round_->Fail({Failure::Kind::kPeer, state_->rank(), true,
                    "rank " + std::to_string(state_->rank()) +
                        " withdrew its call while unwinding an exception"});
    }
    std::vector<Continuation> dropped;  // destroyed after the guard
    try {
      const CallerGuard guard(*state_);
      dropped = state_->continuations().Take(channel_.get(), sequence_);
    } catch (const InvalidArgument&) {
      // As in the destructor.
    }
  }

  void Settle() {
    if (is_recorded_) return;
    const CallerGuard guard(*state_);
    const int64_t began_ns = NowNs();
    state_->Await(*round_);
    WriteRecord(began_ns);
    is_recorded_ = true;
    if (round_->stage() != Round::Stage::kDone) return;
    // Matched, as this one was: no peer is waited for here.
    for (const RoundRef& earlier :
         state_->continuations().Before(channel_.get(), sequence_)) {
      state_->Await(*earlier);
    }
    round_ = RoundRef();
  }

  void WriteRecord(int64_t began_ns) {
    Record* record = state_->recorder().Find(record_);
    if (record == nullptr) return;
    record->wait_began_ns = began_ns;
    record->wait_ended_ns = NowNs();
    if (round_->stage() == Round::Stage::kDone) {
      record->state = RecordState::kDone;
      record->matched_ns = round_->matched_ns();
      record->done_ns = round_->done_ns();
    } else {
      record->state = RecordState::kFailed;
    }
  }

  std::shared_ptr<RankState> state_;
  std::shared_ptr<const std::string> channel_;
  RoundRef round_;  // empty once done and recorded
  const uint64_t sequence_;
  const uint64_t record_;
  const int exceptions_;
  int64_t first_look_ns_ = 0;  // of IsDone, whose deadline counts from it
  bool is_recorded_ = false;
};

namespace {

Record PostedRecord(const Call& call, const std::string& channel,
                    uint64_t sequence, int ranks) {
  Record record;
  record.channel = channel;
  record.sequence = sequence;
  record.operation = call.operation;
  record.reduce_op = call.reduce_op;
  record.dtype = call.dtype;
  record.elems = call.elems;
  record.bytes = call.elems * SizeOf(call.dtype);
  record.sent_bytes = SentBytes(call, ranks);
  record.label = call.label;
  record.is_async = call.is_async;
  record.posted_ns = NowNs();
  return record;
}

bool HasAsync(const Round& round) {
  for (int r = 0; r < round.ranks(); ++r) {
    if (round.call(r).is_async) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<ShmWork> ShmCommunicator::PostRound(Call call) {
  Validate(call, rank(), ranks());
  state_->RunContinuations();
  const CallerGuard guard(*state_);
  state_->ThrowIfAborted();
  cursor_ = cursor_->Next();
  const uint64_t record = state_->recorder().Add(
      PostedRecord(call, *channel_, cursor_->sequence(), ranks()));
  auto work = std::make_unique<ShmWork>(state_, channel_, cursor_, record);
  // Ranks that wait move the data themselves; those that do not wait need the
  // workers.
  if (cursor_->Arrive(rank(), std::move(call)) && HasAsync(*cursor_)) {
    Workers::Get().Submit(cursor_);
  }
  return work;
}

Work ShmCommunicator::Post(Call call) {
  return Work(PostRound(std::move(call)));
}

std::unique_ptr<Communicator> ShmCommunicator::Duplicate(
    std::string_view name) {
  Call call;
  call.operation = Operation::kDuplicate;
  call.label = name;
  const auto work = PostRound(std::move(call));
  const RoundRef round = cursor_;  // a continuation may move the cursor on
  work->Wait();
  return std::make_unique<ShmCommunicator>(state_, std::string(name),
                                           round->TakeChild(rank()));
}

}  // namespace collectives
