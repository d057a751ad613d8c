#include "collectives/rank/rank_work.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "collectives/bare.h"
#include "collectives/errors.h"
#include "collectives/record/clock.h"

namespace collectives {
namespace {

Record PostedRecord(const Call& call, const Position& position, int ranks,
                    int64_t posted_ns) {
  Record record;
  record.channel = *position.channel;
  record.sequence = position.sequence;
  record.operation = call.operation;
  record.reduce_op = call.reduce_op;
  record.dtype = call.dtype;
  record.elems = call.elems;
  record.bytes = call.elems * SizeOf(call.dtype);
  record.sent_bytes = SentBytes(call, ranks);
  record.label = call.label;
  record.is_async = call.is_async;
  record.is_recomputed = call.is_recomputed;
  record.posted_ns = posted_ns;
  return record;
}

// "; before it: #46 all-reduce f32 x 7 'a', #47 ..."; empty for the first.
std::string History(const Recorder& recorder, const Position& position) {
  constexpr uint64_t kMost = 10;
  std::string text;
  for (const Record& record : recorder.Records()) {
    if (record.channel != *position.channel ||
        record.sequence >= position.sequence ||
        record.sequence + kMost < position.sequence) {
      continue;
    }
    text += (text.empty() ? "; before it: #" : ", #") +
            std::to_string(record.sequence) + " " +
            std::string(Name(record.operation)) + " " +
            std::string(Name(record.dtype)) + " x " +
            std::to_string(record.elems) + " '" + record.label + "'";
  }
  return text;
}

}  // namespace

RankWork::RankWork(std::shared_ptr<RankState> state, Position position,
                   const Call& call, int ranks)
    : state_(std::move(state)),
      position_(std::move(position)),
      waits_from_post_(!call.is_async),
      posted_ns_(kIsBare ? 0 : NowNs()),
      record_(kIsBare ? 0
                      : state_->recorder().Add(
                            PostedRecord(call, position_, ranks, posted_ns_))),
      exceptions_(std::uncaught_exceptions()) {}

RankWork::~RankWork() {
  if (std::uncaught_exceptions() > exceptions_) Withdraw();
  if (is_recorded_ || !pending_) return;
  const int64_t began_ns = NowNs();
  pending_->Await(began_ns);
  try {
    const CallerGuard guard(*state_);
    WriteRecord(began_ns, NowNs());
  } catch (const InvalidArgument&) {
    // A second caller of the rank: its own call throws, here a record stays
    // "posted".
  }
}

bool RankWork::IsDone() {
  if (!pending_) return true;
  if (first_look_ns_ == 0) first_look_ns_ = NowNs();
  pending_->Look(first_look_ns_);
  return pending_->IsSettled();
}

void RankWork::Wait() {
  const bool may_count_from_post = std::exchange(waits_from_post_, false);
  const bool has_run = state_->RunContinuations();
  Settle(may_count_from_post && !has_run);
  if (pending_) ThrowIfFailed();
  state_->RunContinuations();
}

// A mismatch says what went before: the calls that matched, and so the same on
// every rank.
void RankWork::ThrowIfFailed() const {
  try {
    pending_->ThrowIfFailed();
  } catch (const MismatchError& e) {
    throw MismatchError(e.what() + History(state_->recorder(), position_));
  }
}

void RankWork::OnDone(std::function<void()> fn) {
  const CallerGuard guard(*state_);
  state_->continuations().Add(
      {position_.channel.get(), position_.sequence, pending_, std::move(fn)});
}

// What an exception unwinds, the peers need not wait for, and what this work
// would have run may refer to what is gone.
void RankWork::Withdraw() {
  if (pending_) pending_->Withdraw();
  std::vector<Continuation> dropped;  // destroyed after the guard
  try {
    const CallerGuard guard(*state_);
    dropped = state_->continuations().Take(position_.channel.get(),
                                           position_.sequence);
  } catch (const InvalidArgument&) {
    // As in the destructor.
  }
}

void RankWork::Settle(bool began_when_posted) {
  if (is_recorded_) return;
  const CallerGuard guard(*state_);
  const int64_t began_ns = began_when_posted ? posted_ns_ : NowNs();
  // Who comes last often finds it done: the clock is then read once less.
  const bool is_done = pending_->stage() == Pending::Stage::kDone;
  if (!is_done) pending_->Await(began_ns);
  WriteRecord(began_ns, is_done || kIsBare
                            ? std::max(began_ns, pending_->done_ns())
                            : NowNs());
  is_recorded_ = true;
  if (pending_->stage() != Pending::Stage::kDone) return;
  // Matched, as this one was: no peer is waited for here.
  for (const auto& earlier : state_->continuations().Before(
           position_.channel.get(), position_.sequence)) {
    earlier->Await(began_ns);
  }
  pending_.reset();
}

void RankWork::WriteRecord(int64_t began_ns, int64_t ended_ns) {
  Record* record = state_->recorder().Find(record_);
  if (record == nullptr) return;
  record->wait_began_ns = began_ns;
  record->wait_ended_ns = ended_ns;
  if (pending_->stage() == Pending::Stage::kDone) {
    record->state = RecordState::kDone;
    record->matched_ns = pending_->matched_ns();
    record->done_ns = pending_->done_ns();
  } else {
    record->state = RecordState::kFailed;
  }
}

}  // namespace collectives
