#include "collectives/c10d/c10d_communicator.h"

#include <utility>

namespace collectives {

std::pair<std::shared_ptr<Entry>, std::unique_ptr<RankWork>>
C10dCommunicator::PostEntry(Call call) {
  Validate(call, rank(), ranks());
  if (group_->options().library != Library::kNccl) {
    RequireHostMemory(call, "this backend");
  }
  state_->RunContinuations();
  const CallerGuard guard(*state_);
  group_->ThrowIfFailed();
  const uint64_t sequence = next_sequence_++;
  auto work = std::make_unique<RankWork>(state_, Position{channel_, sequence},
                                         call, ranks());
  auto entry =
      std::make_shared<Entry>(group_, channel_, sequence, std::move(call));
  if (entry->call().operation == Operation::kDuplicate) {
    entry->channel_id() = group_->ProposeChannelId();
  }
  work->Attach(entry);
  line_->Post(entry);
  return {std::move(entry), std::move(work)};
}

Work C10dCommunicator::Post(Call call) {
  return Work(PostEntry(std::move(call)).second);
}

std::unique_ptr<Communicator> C10dCommunicator::Duplicate(
    std::string_view name) {
  Call call;
  call.operation = Operation::kDuplicate;
  call.label = name;
  const auto [entry, work] = PostEntry(std::move(call));
  work->Wait();
  return std::unique_ptr<Communicator>(new C10dCommunicator(
      group_, state_, std::string(name), entry->channel_id()));
}

}  // namespace collectives
