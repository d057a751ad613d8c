#include "collectives/shm/movement.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace collectives {
namespace {

bool MovesData(const Call& call, int ranks) {
  switch (call.operation) {
    case Operation::kAllReduce:
    case Operation::kBroadcast:
      return ranks > 1;  // of one rank, the value is there already
    case Operation::kReduceScatter:
    case Operation::kAllGather:
      return true;
    case Operation::kBarrier:
    case Operation::kDuplicate:
      return false;
  }
  return false;
}

}  // namespace

void Movement::Plan(std::span<const Call* const> calls) {
  const Call& facts = *calls[0];
  elems_ = 0;
  if (!MovesData(facts, static_cast<int>(calls.size()))) return;
  operation_ = facts.operation;
  reduce_op_ = facts.reduce_op;
  dtype_ = facts.dtype;
  root_ = facts.root;
  elems_ = facts.elems;
  elem_bytes_ = SizeOf(facts.dtype);
  inputs_.clear();
  outputs_.clear();
  offsets_.clear();
  for (const Call* call : calls) {
    inputs_.push_back(call->input);
    outputs_.push_back(call->output);
  }
  offsets_.push_back(0);
  for (int64_t count : facts.counts) {
    offsets_.push_back(offsets_.back() + count);
  }
}

Traffic Movement::Run(int64_t begin, int64_t elems) const {
  switch (operation_) {
    case Operation::kAllReduce:
      return Fold(outputs_, {begin, begin, elems});
    case Operation::kReduceScatter:
      return ReduceScatter(begin, begin + elems);
    case Operation::kAllGather:
      return AllGather(begin, begin + elems);
    case Operation::kBroadcast:
      return CopyToAll(inputs_[root_], begin, begin, elems);
    case Operation::kBarrier:
    case Operation::kDuplicate:
      break;
  }
  return {};
}

Traffic Movement::Fold(std::span<void* const> outputs,
                       const FoldRange& range) const {
  collectives::Fold(dtype_, reduce_op_, inputs_, outputs, range);
  const int64_t bytes = range.elems * elem_bytes_;
  return {static_cast<int64_t>(inputs_.size()) * bytes,
          static_cast<int64_t>(outputs.size()) * bytes};
}

Traffic Movement::ReduceScatter(int64_t begin, int64_t end) const {
  Traffic traffic;
  for (size_t owner = 0; owner < outputs_.size(); ++owner) {
    const int64_t from = std::max(begin, offsets_[owner]);
    const int64_t to = std::min(end, offsets_[owner + 1]);
    if (from >= to) continue;
    traffic += Fold(std::span(&outputs_[owner], 1),
                    {from, from - offsets_[owner], to - from});
  }
  return traffic;
}

Traffic Movement::AllGather(int64_t begin, int64_t end) const {
  Traffic traffic;
  for (size_t owner = 0; owner < inputs_.size(); ++owner) {
    const int64_t from = std::max(begin, offsets_[owner]);
    const int64_t to = std::min(end, offsets_[owner + 1]);
    if (from >= to) continue;
    traffic +=
        CopyToAll(inputs_[owner], from - offsets_[owner], from, to - from);
  }
  return traffic;
}

// Read once: the copies after the first find it in the cache, as it is copied
// in blocks.
Traffic Movement::CopyToAll(const void* from, int64_t from_elem,
                            int64_t to_elem, int64_t elems) const {
  constexpr int64_t kBlock = 8 << 10;
  const auto* source =
      static_cast<const std::byte*>(from) + from_elem * elem_bytes_;
  const int64_t bytes = elems * elem_bytes_;
  Traffic traffic{bytes, 0};
  for (int64_t at = 0; at < bytes; at += kBlock) {
    const int64_t length = std::min(kBlock, bytes - at);
    for (void* output : outputs_) {
      auto* target = static_cast<std::byte*>(output) + to_elem * elem_bytes_;
      if (source == target) continue;  // in place
      std::memcpy(target + at, source + at, static_cast<size_t>(length));
      traffic.written += length;
    }
  }
  return traffic;
}

}  // namespace collectives
