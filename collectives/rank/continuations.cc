#include "collectives/rank/continuations.h"

#include <algorithm>
#include <utility>

namespace collectives {

void Continuations::Add(Continuation continuation) {
  const auto later =
      std::find_if(items_.begin(), items_.end(), [&](const Continuation& c) {
        return c.channel == continuation.channel &&
               c.sequence > continuation.sequence;
      });
  items_.insert(later, std::move(continuation));
  size_.Set(items_.size());
}

std::optional<Continuation> Continuations::TryTake() {
  std::vector<const void*> held_up;  // channels; one or two
  for (auto item = items_.begin(); item != items_.end(); ++item) {
    if (std::find(held_up.begin(), held_up.end(), item->channel) !=
        held_up.end()) {
      continue;
    }
    if (item->IsSettled()) {
      std::optional<Continuation> taken(std::move(*item));
      items_.erase(item);
      size_.Set(items_.size());
      return taken;
    }
    held_up.push_back(item->channel);
  }
  return std::nullopt;
}

std::vector<Continuation> Continuations::Take(const void* channel,
                                              uint64_t sequence) {
  const auto taken = std::stable_partition(
      items_.begin(), items_.end(), [&](const Continuation& c) {
        return c.channel != channel || c.sequence != sequence;
      });
  std::vector<Continuation> result(std::make_move_iterator(taken),
                                   std::make_move_iterator(items_.end()));
  items_.erase(taken, items_.end());
  size_.Set(items_.size());
  return result;
}

std::vector<Continuation> Continuations::TakeAll() {
  std::vector<Continuation> all(std::make_move_iterator(items_.begin()),
                                std::make_move_iterator(items_.end()));
  items_.clear();
  size_.Set(items_.size());
  return all;
}

std::vector<std::shared_ptr<Pending>> Continuations::Before(
    const void* channel, uint64_t sequence) const {
  std::vector<std::shared_ptr<Pending>> before;
  for (const Continuation& c : items_) {
    if (c.channel != channel) continue;
    if (c.sequence == sequence) return before;
    if (c.pending) before.push_back(c.pending);
  }
  return {};
}

}  // namespace collectives
