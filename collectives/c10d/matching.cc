#include "collectives/c10d/matching.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/errors.h"
#include "collectives/reduce/fold.h"

namespace collectives {
namespace {

// What rides along: where it lies, and how much of it there is on any rank.
struct Payload {
  const void* data = nullptr;
  int64_t most_bytes = 0;
  int64_t bytes = 0;  // of this rank
};

Payload PayloadOf(const Call& call, int rank) {
  const int64_t elem_bytes = SizeOf(call.dtype);
  const int64_t all = call.elems * elem_bytes;
  switch (call.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
      return {call.input, all, all};
    case Operation::kBroadcast:
      return {call.input, all, rank == call.root ? all : 0};
    case Operation::kAllGather:
      return {call.input,
              *std::max_element(call.counts.begin(), call.counts.end()) *
                  elem_bytes,
              call.counts[static_cast<size_t>(rank)] * elem_bytes};
    case Operation::kDuplicate:  // the number proposed for the new channel
      return {call.input, sizeof(int64_t), sizeof(int64_t)};
    case Operation::kBarrier:
      return {};
  }
  return {};
}

// FNV-1a.
uint64_t HashOf(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (std::byte b : bytes) {
    hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  }
  return hash;
}

void CopyBytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

std::vector<std::byte> Encode(const Call& call) {
  std::vector<int64_t> facts = {static_cast<int64_t>(call.operation),
                                static_cast<int64_t>(call.reduce_op),
                                static_cast<int64_t>(call.dtype),
                                call.elems,
                                call.root,
                                call.is_recomputed ? 1 : 0};
  facts.push_back(static_cast<int64_t>(call.counts.size()));
  facts.insert(facts.end(), call.counts.begin(), call.counts.end());
  const auto as_bytes = std::as_bytes(std::span(facts));
  std::vector<std::byte> bytes(as_bytes.begin(), as_bytes.end());
  const auto label = std::as_bytes(std::span(call.label));
  bytes.insert(bytes.end(), label.begin(), label.end());
  return bytes;
}

Call Decode(const std::vector<std::byte>& bytes) {
  constexpr size_t kFixed = 7;  // facts before the counts
  const size_t most = bytes.size() / sizeof(int64_t);
  std::vector<int64_t> facts(most);
  CopyBytes(facts.data(), bytes.data(),
            static_cast<int64_t>(most * sizeof(int64_t)));
  const bool is_sound =
      most >= kFixed && facts[6] >= 0 &&
      facts[6] <= static_cast<int64_t>(most - kFixed) && facts[0] >= 0 &&
      facts[0] <= static_cast<int64_t>(Operation::kDuplicate) &&
      facts[1] >= 0 && facts[1] <= static_cast<int64_t>(ReduceOp::kMax) &&
      facts[2] >= 0 && facts[2] <= static_cast<int64_t>(DType::kU8) &&
      facts[5] >= 0 && facts[5] <= 1;
  if (!is_sound) throw Error("a peer's facts of its call cannot be read");
  Call call;
  call.operation = static_cast<Operation>(facts[0]);
  call.reduce_op = static_cast<ReduceOp>(facts[1]);
  call.dtype = static_cast<DType>(facts[2]);
  call.elems = facts[3];
  call.root = static_cast<int>(facts[4]);
  call.is_recomputed = facts[5] == 1;
  const auto counts = facts.begin() + kFixed;
  call.counts.assign(counts, counts + facts[6]);
  const size_t label = (kFixed + call.counts.size()) * sizeof(int64_t);
  call.label.assign(reinterpret_cast<const char*>(bytes.data()) + label,
                    bytes.size() - label);
  return call;
}

Matching::Matching(Mesh& mesh, int tag)
    : mesh_(mesh), tag_(tag), messages_(static_cast<size_t>(mesh.ranks())) {}

Matching::Outcome Matching::Meet(const Call& call, int64_t deadline_ns) {
  const std::vector<std::byte> encoded = Encode(call);
  Message& mine = messages_[static_cast<size_t>(mesh_.rank())];
  mine.kind = Kind::kCall;
  mine.encoded_bytes = static_cast<uint32_t>(encoded.size());
  mine.hash = HashOf(encoded);
  if (call.device == kHostMemory && RidesAlong(call)) {
    const Payload payload = PayloadOf(call, mesh_.rank());
    CopyBytes(mine.payload, payload.data, payload.bytes);
  }
  Exchange(deadline_ns);
  bool is_equal = true;
  for (size_t r = 0; r < messages_.size(); ++r) {
    if (messages_[r].kind == Kind::kLeft) return {"", static_cast<int>(r)};
    is_equal = is_equal && messages_[r].hash == mine.hash;
  }
  if (is_equal) return {};
  return {MismatchText(encoded, deadline_ns), -1};
}

void Matching::Leave(int64_t deadline_ns) {
  messages_[static_cast<size_t>(mesh_.rank())].kind = Kind::kLeft;
  Exchange(deadline_ns);
}

bool Matching::RidesAlong(const Call& call) {
  const int root = call.root;
  const Payload payload =
      PayloadOf(call, call.operation == Operation::kBroadcast ? root : 0);
  return payload.most_bytes <= static_cast<int64_t>(Message::kPayloadBytes);
}

void Matching::Finish(const Call& call) const {
  const int64_t elem_bytes = SizeOf(call.dtype);
  const auto payload_of = [this](int rank) {
    return messages_[static_cast<size_t>(rank)].payload;
  };
  switch (call.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter: {
      std::vector<const void*> sources;
      for (const Message& m : messages_) sources.push_back(m.payload);
      const bool scatters = call.operation == Operation::kReduceScatter;
      const FoldRange range{scatters ? OffsetOf(call, mesh_.rank()) : 0, 0,
                            scatters
                                ? call.counts[static_cast<size_t>(mesh_.rank())]
                                : call.elems};
      return Fold(call.dtype, call.reduce_op, sources,
                  std::span(&call.output, 1), range);
    }
    case Operation::kAllGather:
      for (int r = 0; r < mesh_.ranks(); ++r) {
        CopyBytes(static_cast<std::byte*>(call.output) +
                      OffsetOf(call, r) * elem_bytes,
                  payload_of(r),
                  call.counts[static_cast<size_t>(r)] * elem_bytes);
      }
      return;
    case Operation::kBroadcast:
      return CopyBytes(call.output, payload_of(call.root),
                       call.elems * elem_bytes);
    case Operation::kDuplicate:
      return CopyBytes(call.output, payload_of(0), sizeof(int64_t));
    case Operation::kBarrier:
      return;
  }
}

void Matching::Exchange(int64_t deadline_ns) {
  std::vector<Piece> sends, receives;
  const auto bytes = static_cast<int64_t>(sizeof(Message));
  for (int r = 0; r < mesh_.ranks(); ++r) {
    if (r == mesh_.rank()) continue;
    sends.push_back({r, &messages_[static_cast<size_t>(mesh_.rank())], bytes});
    receives.push_back({r, &messages_[static_cast<size_t>(r)], bytes});
  }
  mesh_.Start(sends, receives, tag_, Mesh::Phase::kMatching)->Wait(deadline_ns);
}

std::string Matching::MismatchText(const std::vector<std::byte>& encoded,
                                   int64_t deadline_ns) {
  std::vector<std::vector<std::byte>> all(messages_.size());
  std::vector<Piece> sends, receives;
  for (size_t r = 0; r < all.size(); ++r) {
    const int peer = static_cast<int>(r);
    if (peer == mesh_.rank()) {
      all[r] = encoded;
      continue;
    }
    all[r].resize(messages_[r].encoded_bytes);
    sends.push_back({peer, const_cast<std::byte*>(encoded.data()),
                     static_cast<int64_t>(encoded.size())});
    receives.push_back(
        {peer, all[r].data(), static_cast<int64_t>(all[r].size())});
  }
  mesh_.Start(sends, receives, tag_ + 1, Mesh::Phase::kMatching)
      ->Wait(deadline_ns);
  std::vector<Call> calls;
  for (const auto& bytes : all) calls.push_back(Decode(bytes));
  std::vector<const Call*> pointers;
  for (const Call& call : calls) pointers.push_back(&call);
  return Mismatch(pointers);
}

}  // namespace collectives
