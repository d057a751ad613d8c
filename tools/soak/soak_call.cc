#include "tools/soak/soak_call.h"

#include <fmt/core.h>

#include <algorithm>

#include "collectives/errors.h"
#include "trainsys/random/splitmix64.h"

namespace trainsys {
namespace {

using collectives::Bytes;
using collectives::Call;
using collectives::Communicator;
using collectives::DType;
using collectives::OffsetOf;
using collectives::Operation;
using collectives::PoisonedBuffer;
using collectives::ReduceOp;
using collectives::SizeOf;
using collectives::Work;

constexpr int64_t kMaxBytes = 1 << 20;

bool HasParts(Operation operation) {
  return operation == Operation::kReduceScatter ||
         operation == Operation::kAllGather;
}

// Three in four are small, one in a hundred is of any size.
int64_t RandomBytes(SplitMix64& random) {
  const uint64_t kind = random.Below(100);
  const uint64_t most = kind < 75 ? 256 : kind < 99 ? 16 << 10 : kMaxBytes;
  return static_cast<int64_t>(random.Below(most + 1));
}

std::vector<int64_t> RandomCounts(SplitMix64& random, int ranks,
                                  int64_t elems) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks), 0);
  int64_t left = elems;
  for (int64_t& count : counts) {
    if (random.Below(4) == 0) continue;
    count = std::min(left, static_cast<int64_t>(
                               random.Below(2 * static_cast<uint64_t>(elems) /
                                                static_cast<uint64_t>(ranks) +
                                            1)));
    left -= count;
  }
  counts[random.Below(static_cast<uint64_t>(ranks))] += left;
  return counts;
}

// Equal on all ranks but for memory and is_async.
Call RandomCall(SplitMix64& random, int ranks) {
  Call call;
  call.operation = static_cast<Operation>(random.Below(5));
  call.label = std::to_string(random.Below(1000));
  if (call.operation == Operation::kBarrier) return call;
  call.dtype = static_cast<DType>(random.Below(7));
  call.elems = RandomBytes(random) / SizeOf(call.dtype);
  if (collectives::Reduces(call.operation)) {
    call.reduce_op = static_cast<ReduceOp>(random.Below(5));
    if (collectives::IsInteger(call.dtype) &&
        call.reduce_op == ReduceOp::kAverage) {
      call.reduce_op = ReduceOp::kSum;
    }
  } else if (call.operation == Operation::kBroadcast) {
    call.root = static_cast<int>(random.Below(static_cast<uint64_t>(ranks)));
  }
  if (HasParts(call.operation)) {
    call.counts = RandomCounts(random, ranks, call.elems);
  }
  return call;
}

}  // namespace

SoakValues::SoakValues(uint64_t seed) {
  for (size_t i = 0; i < values_.size(); ++i) {
    const auto dtype = static_cast<DType>(i);
    values_[i] = collectives::RandomValues(dtype, 2 * kMaxBytes / SizeOf(dtype),
                                           seed + i);
  }
}

Bytes SoakValues::Piece(DType dtype, int64_t elems, uint64_t where) const {
  const Bytes& all = values_[static_cast<size_t>(dtype)];
  const auto places = static_cast<uint64_t>(
      static_cast<int64_t>(all.size()) / SizeOf(dtype) - elems + 1);
  return collectives::Slice(all, dtype, static_cast<int64_t>(where % places),
                            elems);
}

SoakCall::SoakCall(const SoakPosition& position, int rank,
                   const SoakValues& values)
    : position_(position), rank_(rank) {
  SplitMix64 random(SplitMix64::Mix(
      SplitMix64::Mix(position.seed, static_cast<uint64_t>(position.channel)),
      position.sequence));
  call_ = RandomCall(random, position.ranks);
  for (int r = 0; r < position.ranks; ++r) {
    sent_.push_back(values.Piece(call_.dtype, InputElems(r), random.Next()));
  }
  if (HasParts(call_.operation) && random.Below(2) == 0) {
    MakeApart();
  } else {
    MakeInPlace();
  }
}

Work SoakCall::Post(Communicator& comm) {
  call_.is_async = false;
  return comm.Post(call_);
}

Work SoakCall::PostAsync(Communicator& comm) {
  call_.is_async = true;
  return comm.Post(call_);
}

void SoakCall::Check() const {
  const bool is_right =
      output_->Holds(Expected()) && output_->IsPoisonIntact() &&
      (!input_ || (input_->Holds(Sent(rank_)) && input_->IsPoisonIntact()));
  if (is_right) return;
  throw collectives::Error(fmt::format(
      "wrong result on rank {} of {}, channel {}, collective {}: {}", rank_,
      position_.ranks, position_.channel, position_.sequence,
      collectives::Describe(call_)));
}

int64_t SoakCall::InputElems(int rank) const {
  return call_.operation == Operation::kAllGather
             ? call_.counts[static_cast<size_t>(rank)]
             : call_.elems;
}

// One buffer of all elements; a part is at its own offset.
void SoakCall::MakeInPlace() {
  if (call_.operation != Operation::kAllGather) {
    output_ = std::make_unique<PoisonedBuffer>(call_.dtype, Sent(rank_));
    call_.input = call_.output = output_->data();
    if (HasParts(call_.operation)) {
      call_.output = output_->At(OffsetOf(call_, rank_));
    }
    return;
  }
  output_ = std::make_unique<PoisonedBuffer>(call_.dtype, call_.elems);
  auto* part = static_cast<std::byte*>(output_->At(OffsetOf(call_, rank_)));
  std::copy(Sent(rank_).begin(), Sent(rank_).end(), part);
  call_.input = part;
  call_.output = output_->data();
}

void SoakCall::MakeApart() {
  const bool gathers = call_.operation == Operation::kAllGather;
  input_ = std::make_unique<PoisonedBuffer>(call_.dtype, Sent(rank_));
  output_ = std::make_unique<PoisonedBuffer>(
      call_.dtype,
      gathers ? call_.elems : call_.counts[static_cast<size_t>(rank_)]);
  call_.input = input_->data();
  call_.output = output_->data();
}

Bytes SoakCall::Expected() const {
  switch (call_.operation) {
    case Operation::kAllReduce:
      return SerialFold(call_.dtype, call_.reduce_op, sent_);
    case Operation::kReduceScatter:
      return Scattered();
    case Operation::kAllGather:
      return Gathered();
    case Operation::kBroadcast:
      return Sent(call_.root);
    default:
      return {};
  }
}

Bytes SoakCall::Gathered() const {
  Bytes all;
  for (const Bytes& part : sent_) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// In place, the rest of the buffer stays as it was.
Bytes SoakCall::Scattered() const {
  const int64_t offset = OffsetOf(call_, rank_);
  const int64_t part = call_.counts[static_cast<size_t>(rank_)];
  std::vector<Bytes> parts;
  for (const Bytes& sent : sent_) {
    parts.push_back(collectives::Slice(sent, call_.dtype, offset, part));
  }
  const Bytes fold = SerialFold(call_.dtype, call_.reduce_op, parts);
  if (input_) return fold;
  Bytes all = Sent(rank_);
  std::copy(fold.begin(), fold.end(),
            all.begin() + offset * SizeOf(call_.dtype));
  return all;
}

}  // namespace trainsys
