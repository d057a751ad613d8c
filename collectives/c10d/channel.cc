#include "collectives/c10d/channel.h"

#include <utility>

#include "collectives/c10d/group.h"
#include "collectives/c10d/library_transport.h"
#include "collectives/record/clock.h"

namespace collectives {

Entry::Entry(std::shared_ptr<C10dGroup> group,
             std::shared_ptr<const std::string> channel, uint64_t sequence,
             Call call)
    : group_(std::move(group)),
      channel_(std::move(channel)),
      sequence_(sequence),
      call_(std::move(call)),
      mark_(call_.device) {
  if (call_.operation == Operation::kDuplicate) {
    call_.input = call_.output = &channel_id_;
  }
}

void Entry::Await(int64_t /*since_ns*/) {
  const auto is_settled = [this] { return IsSettled(); };
  while (!settled_.Await(std::chrono::milliseconds(50), is_settled)) {
  }
}

void Entry::Withdraw() {
  if (stage() == Stage::kOpen) group_->Withdraw();
}

void Entry::ThrowIfFailed() const {
  if (stage() == Stage::kFailed) Throw(failure_, *channel_, sequence_, call_);
}

Standing Entry::standing() const {
  return {*channel_, sequence_, Describe(call_)};
}

void Entry::Match() {
  matched_ns_ = NowNs();
  stage_ = Stage::kMatched;
}

void Entry::Finish() {
  done_ns_ = NowNs();
  stage_ = Stage::kDone;
  settled_.NotifyAll();
}

void Entry::Fail(Failure failure) {
  failure_ = std::move(failure);
  stage_ = Stage::kFailed;
  settled_.NotifyAll();
}

Channel::Channel(C10dGroup& group, int64_t id)
    : group_(group),
      id_(id),
      matching_(group.mesh(), static_cast<int>(id) * kTags),
      exact_(group.mesh(), static_cast<int>(id) * kTags + 2, group.timeout()),
      thread_([this] { Run(); }) {}

Channel::~Channel() {
  Leave();
  Join();
}

void Channel::Post(std::shared_ptr<Entry> entry) {
  {
    const std::lock_guard lock(mutex_);
    if (!has_left_) {
      queue_.push_back(std::move(entry));
      has_more_.notify_one();
      return;
    }
  }
  entry->Fail({Failure::Kind::kPeer, group_.rank(), false,
               "rank " + std::to_string(group_.rank()) +
                   " has left: its function returned"});
}

void Channel::Leave() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_left_, true)) return;
  queue_.push_back(nullptr);
  has_more_.notify_one();
}

void Channel::Join() {
  if (thread_.joinable()) thread_.join();
}

void Channel::Run() {
  for (;;) {
    std::shared_ptr<Entry> entry;
    {
      std::unique_lock lock(mutex_);
      has_more_.wait(lock, [this] { return !queue_.empty(); });
      entry = std::move(queue_.front());
      queue_.pop_front();
    }
    if (!entry) break;
    Process(*entry);
  }
  SayGoodbye();
}

void Channel::Process(Entry& entry) {
  try {
    if (const auto failure = group_.failure()) return entry.Fail(*failure);
    MatchAndMove(entry);
  } catch (const LinkError& e) {
    entry.Fail(group_.Explain(e, entry.standing()));
  } catch (const std::exception& e) {
    const FailureCause cause{group_.rank(), e.what()};
    group_.Fail(cause);
    entry.Fail({Failure::Kind::kPeer, cause.rank, false, cause.what});
  }
}

void Channel::MatchAndMove(Entry& entry) {
  const Call& call = entry.call();
  // These two are a meeting and nothing else.
  const bool is_met = group_.options().is_matching ||
                      call.operation == Operation::kBarrier ||
                      call.operation == Operation::kDuplicate;
  const auto hold = group_.mesh().Hold();
  if (is_met && left_ < 0) {
    const Matching::Outcome outcome =
        matching_.Meet(call, DeadlineAfter(group_.timeout()));
    if (!outcome.mismatch.empty()) {
      return entry.Fail({Failure::Kind::kMismatch, 0, false, outcome.mismatch});
    }
    left_ = outcome.left;
  }
  if (left_ >= 0) {
    return entry.Fail(
        {Failure::Kind::kPeer, left_, false,
         "rank " + std::to_string(left_) + " has left: its function returned"});
  }
  entry.Match();
  const bool is_in_host_memory = call.device == kHostMemory;
  if (is_met && is_in_host_memory && Matching::RidesAlong(call)) {
    matching_.Finish(call);
  } else {
    const DeviceScope device(call.device, entry.mark());
    transport().Run(call);
  }
  entry.Finish();
}

Transport& Channel::transport() {
  const Library library = group_.options().library;
  const bool is_alone = group_.ranks() == 1 && library != Library::kNccl;
  if (library == Library::kNone || is_alone) return exact_;
  if (!library_) {
    const auto store =
        group_.store().WithPrefix("library/" + std::to_string(id_));
    library_ = MakeLibraryTransport(library, *store,
                                    {group_.rank(), group_.ranks(),
                                     group_.options().host, group_.timeout()},
                                    exact_);
  }
  return *library_;
}

// Until all have come here, data may still be on its way to them. The others
// may compute for long after their last call; who dies is noticed at once.
void Channel::SayGoodbye() {
  if (group_.failure() || left_ >= 0) return;
  try {
    matching_.Leave(DeadlineAfter(group_.leaving_timeout()));
  } catch (const LinkError& e) {
    group_.Explain(e, {"", 0, "at its end"});
  }
}

}  // namespace collectives
