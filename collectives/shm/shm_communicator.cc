#include "collectives/shm/shm_communicator.h"

#include <utility>

#include "collectives/errors.h"
#include "collectives/shm/workers.h"

namespace collectives {
namespace {

// One rank's part of a round.
class PendingRound final : public Pending {
 public:
  PendingRound(std::shared_ptr<ShmGroup> group, int rank,
               std::shared_ptr<const std::string> channel, RoundRef round)
      : group_(std::move(group)),
        rank_(rank),
        channel_(std::move(channel)),
        round_(std::move(round)) {}

  Stage stage() const override { return round_->stage(); }
  void Look(int64_t since_ns) override {
    group_->GiveUpIfHopeless(*round_, since_ns);
  }
  void Await() override { group_->Await(*round_); }
  void Withdraw() override {
    round_->Fail({Failure::Kind::kPeer, rank_, true,
                  "rank " + std::to_string(rank_) +
                      " withdrew its call while unwinding an exception"});
  }
  void ThrowIfFailed() const override {
    if (stage() != Stage::kFailed) return;
    const Failure& failure = round_->failure();
    if (failure.is_withdrawal && failure.rank != rank_) {
      group_->AwaitCause();
      group_->ThrowIfAborted();
    }
    Throw(failure, *channel_, round_->sequence(), round_->call(rank_));
  }
  int64_t matched_ns() const override { return round_->matched_ns(); }
  int64_t done_ns() const override { return round_->done_ns(); }

 private:
  std::shared_ptr<ShmGroup> group_;
  const int rank_;
  std::shared_ptr<const std::string> channel_;
  RoundRef round_;  // holds all the rounds that follow
};

bool HasAsync(const Round& round) {
  for (int r = 0; r < round.ranks(); ++r) {
    if (round.call(r).is_async) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<RankWork> ShmCommunicator::PostRound(Call call) {
  Validate(call, rank(), ranks());
  RequireHostMemory(call, "ranks as threads");
  state_->RunContinuations();
  const CallerGuard guard(*state_);
  group_->ThrowIfAborted();
  cursor_ = cursor_->Next();
  auto work = std::make_unique<RankWork>(
      state_, Position{channel_, cursor_->sequence()}, call, ranks());
  work->Attach(
      std::make_shared<PendingRound>(group_, rank(), channel_, cursor_));
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
  return std::make_unique<ShmCommunicator>(group_, state_, std::string(name),
                                           round->TakeChild(rank()));
}

}  // namespace collectives
