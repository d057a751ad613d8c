#include "collectives/shm/movement.h"

#include <algorithm>
#include <cstring>

#include "collectives/reduce/fold.h"

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

void Movement::Run(int64_t begin, int64_t elems) const {
  switch (operation_) {
    case Operation::kAllReduce:
      return Fold(dtype_, reduce_op_, inputs_, outputs_, {begin, begin, elems});
    case Operation::kReduceScatter:
      return ReduceScatter(begin, begin + elems);
    case Operation::kAllGather:
      return AllGather(begin, begin + elems);
    case Operation::kBroadcast:
      return Broadcast(begin, elems);
    case Operation::kBarrier:
    case Operation::kDuplicate:
      return;
  }
}

void Movement::ReduceScatter(int64_t begin, int64_t end) const {
  for (size_t owner = 0; owner < outputs_.size(); ++owner) {
    const int64_t from = std::max(begin, offsets_[owner]);
    const int64_t to = std::min(end, offsets_[owner + 1]);
    if (from >= to) continue;
    Fold(dtype_, reduce_op_, inputs_, std::span(&outputs_[owner], 1),
         {from, from - offsets_[owner], to - from});
  }
}

void Movement::AllGather(int64_t begin, int64_t end) const {
  for (size_t owner = 0; owner < inputs_.size(); ++owner) {
    const int64_t from = std::max(begin, offsets_[owner]);
    const int64_t to = std::min(end, offsets_[owner + 1]);
    if (from >= to) continue;
    for (void* output : outputs_) {
      Copy(inputs_[owner], from - offsets_[owner], output, from, to - from);
    }
  }
}

void Movement::Broadcast(int64_t begin, int64_t elems) const {
  for (void* output : outputs_) {
    Copy(inputs_[root_], begin, output, begin, elems);
  }
}

void Movement::Copy(const void* from, int64_t from_elem, void* to,
                    int64_t to_elem, int64_t elems) const {
  const auto* source =
      static_cast<const std::byte*>(from) + from_elem * elem_bytes_;
  auto* target = static_cast<std::byte*>(to) + to_elem * elem_bytes_;
  if (source == target) return;  // in place
  std::memcpy(target, source, static_cast<size_t>(elems * elem_bytes_));
}

}  // namespace collectives
