// What a rank has asked to run once its collectives are done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/rank/pending.h"
#include "collectives/sync/hint.h"

namespace collectives {

struct Continuation {
  const void* channel = nullptr;  // identifies it
  uint64_t sequence = 0;
  std::shared_ptr<Pending> pending;  // null: done already
  std::function<void()> fn;

  bool IsSettled() const { return !pending || pending->IsSettled(); }
  bool HasFailed() const {
    return pending && pending->stage() == Pending::Stage::kFailed;
  }
};

// Those of one channel leave in the order of their collectives, so that what
// they post comes in the same order on every rank; channels do not hold up one
// another. Nothing is run or destroyed here: a function may own a Work.
// Threads: one caller at a time.
class Continuations {
 public:
  // Any thread: as the last caller left it.
  bool IsEmpty() const { return size_.get() == 0; }

  void Add(Continuation continuation);

  // The next that is settled and has nothing pending before it.
  std::optional<Continuation> TryTake();

  // Those of one collective, whatever its stage.
  std::vector<Continuation> Take(const void* channel, uint64_t sequence);
  std::vector<Continuation> TakeAll();

  // The collectives whose continuations hold up those of this one; none if it
  // has none.
  std::vector<std::shared_ptr<Pending>> Before(const void* channel,
                                               uint64_t sequence) const;

 private:
  std::deque<Continuation> items_;  // of one channel: in order of sequence
  Hint<size_t> size_{0};            // of items_
};

}  // namespace collectives
