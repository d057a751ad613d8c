#include "collectives/shm/shm_communicator.h"

#include <utility>

#include "collectives/bare.h"
#include "collectives/errors.h"
#include "collectives/shm/workers.h"

namespace collectives {
namespace {

// One rank's part of a round. Holds the round.
class PendingRound final : public Pending {
 public:
  PendingRound(std::shared_ptr<const RankChannel> mine, Round& round)
      : mine_(std::move(mine)), round_(round) {}
  ~PendingRound() override { mine_->channel->rounds.Release(round_); }

  Stage stage() const override { return round_.stage(); }
  void Look(int64_t since_ns) override {
    mine_->group->GiveUpIfHopeless(round_, since_ns);
  }
  void Await(int64_t since_ns) override {
    mine_->group->Await(round_, rank(), since_ns);
  }
  void Withdraw() override {
    round_.Fail({Failure::Kind::kPeer, rank(), true,
                 "rank " + std::to_string(rank()) +
                     " withdrew its call while unwinding an exception"});
  }
  void ThrowIfFailed() const override {
    if (stage() != Stage::kFailed) return;
    const Failure& failure = round_.failure();
    if (failure.is_withdrawal && failure.rank != rank()) {
      mine_->group->AwaitCause();
      mine_->group->ThrowIfAborted(mine_->channel->name, round_.sequence(),
                                   round_.call(rank()));
    }
    Throw(failure, mine_->channel->name, round_.sequence(),
          round_.call(rank()));
  }
  int64_t matched_ns() const override { return round_.matched_ns(); }
  int64_t done_ns() const override { return round_.done_ns(); }

 private:
  int rank() const { return mine_->state->rank(); }

  std::shared_ptr<const RankChannel> mine_;
  Round& round_;
};

}  // namespace

std::unique_ptr<RankWork> ShmCommunicator::PostRound(Call&& call,
                                                     RoundRef* kept) {
  if (!kIsBare) Validate(call, rank(), ranks());
  RequireHostMemory(call, "ranks as threads");
  mine_->state->RunContinuations();
  const CallerGuard guard(*mine_->state);
  if (!kIsBare) {
    mine_->group->ThrowIfAborted(*name_, cursor_->sequence(), call);
  }
  // Starts them, which may fail: before the round is held.
  if (call.is_async) Workers::Get();
  auto work = std::make_unique<RankWork>(
      mine_->state, Position{name_, cursor_->sequence()}, call, ranks());
  work->Attach(std::make_shared<PendingRound>(mine_, *cursor_));
  if (kept) *kept = RoundRef(mine_->channel, *cursor_);
  TakeTurn(std::move(call), work->posted_ns());
  return work;
}

// Out of memory in here would leave the rank between two rounds: it ends the
// process.
void ShmCommunicator::TakeTurn(Call&& call, int64_t posted_ns) noexcept {
  Round& round = *cursor_;
  const int home = mine_->group->HomeOf(rank());
  // Ranks that wait move the data themselves; those that do not wait need the
  // workers.
  if (round.Arrive(rank(), std::move(call), posted_ns, home) &&
      round.has_async()) {
    Workers::Get().Submit(RoundRef(mine_->channel, round));
  }
  // Afterwards: while it waits, a rank has time to make the next.
  cursor_ = &mine_->channel->rounds.After(round);
}

Work ShmCommunicator::Post(Call call) {
  return Work(PostRound(std::move(call)));
}

std::unique_ptr<Communicator> ShmCommunicator::Duplicate(
    std::string_view name) {
  Call call;
  call.operation = Operation::kDuplicate;
  call.label = name;
  // Posting may run a continuation, which may post here first: the round is
  // known afterwards only.
  RoundRef round;
  const auto work = PostRound(std::move(call), &round);
  work->Wait();
  return std::make_unique<ShmCommunicator>(
      RankChannel{mine_->group, mine_->state, round->child()});
}

}  // namespace collectives
