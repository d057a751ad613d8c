#include "collectives/c10d/exact_transport.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "collectives/record/clock.h"
#include "collectives/reduce/fold.h"

namespace collectives {
namespace {

constexpr int kScatterRound = 0;
constexpr int kGatherRound = 1;

// As even as whole cache lines allow; the last ranks may have less or nothing.
std::vector<int64_t> EvenCounts(int64_t elems, int64_t elem_bytes, int ranks) {
  const int64_t line = std::max<int64_t>(1, 64 / elem_bytes);
  const int64_t lines = (elems + line - 1) / line;
  const int64_t count = (lines + ranks - 1) / ranks * line;
  std::vector<int64_t> counts;
  for (int64_t left = elems; static_cast<int>(counts.size()) < ranks;) {
    counts.push_back(std::min(count, left));
    left -= counts.back();
  }
  return counts;
}

std::byte* Bytes(void* data) { return static_cast<std::byte*>(data); }
const std::byte* Bytes(const void* data) {
  return static_cast<const std::byte*>(data);
}

}  // namespace

// Where each rank's part of the buffer lies, and its pieces, in bytes.
class ExactTransport::Parts {
 public:
  Parts(const std::vector<int64_t>& counts, int64_t elem_bytes,
        int64_t piece_bytes)
      : piece_bytes_(piece_bytes / elem_bytes * elem_bytes) {
    int64_t begin = 0;
    for (int64_t count : counts) {
      begins_.push_back(begin);
      begin += count * elem_bytes;
      num_pieces_ = std::max(
          num_pieces_, (count * elem_bytes + piece_bytes_ - 1) / piece_bytes_);
    }
    begins_.push_back(begin);
  }

  int64_t num_pieces() const { return num_pieces_; }  // of the longest part
  int64_t Begin(int rank) const { return begins_[static_cast<size_t>(rank)]; }
  int64_t Bytes(int rank) const { return Begin(rank + 1) - Begin(rank); }

  // Of the rank's part, counted from the part's begin; 0 bytes past its end.
  int64_t PieceBegin(int64_t piece) const { return piece * piece_bytes_; }
  int64_t PieceBytes(int rank, int64_t piece) const {
    return std::clamp<int64_t>(Bytes(rank) - PieceBegin(piece), 0,
                               piece_bytes_);
  }

 private:
  const int64_t piece_bytes_;
  int64_t num_pieces_ = 0;
  std::vector<int64_t> begins_;  // and the end
};

void ExactTransport::Run(const Call& call) {
  switch (call.operation) {
    case Operation::kAllReduce:
      return AllReduce(call);
    case Operation::kReduceScatter:
      return ReduceScatter(call);
    case Operation::kAllGather:
      return AllGather(call);
    case Operation::kBroadcast:
      return Broadcast(call);
    case Operation::kBarrier:
    case Operation::kDuplicate:
      return;
  }
}

void ExactTransport::AllReduce(const Call& call) {
  const int64_t elem_bytes = SizeOf(call.dtype);
  const Parts parts(EvenCounts(call.elems, elem_bytes, mesh_.ranks()),
                    elem_bytes, piece_bytes_);
  std::byte* all = Bytes(call.output);
  Transfers gathers;
  std::unique_ptr<Transfer> incoming, next;
  for (int64_t k = 0; k < parts.num_pieces(); ++k) {
    incoming = k == 0 ? Scatter(parts, 0, all) : std::move(next);
    if (k + 1 < parts.num_pieces()) next = Scatter(parts, k + 1, all);
    Wait(*incoming);
    FoldPiece(call, parts, k, all + parts.Begin(mesh_.rank()));
    gathers.push_back(Gather(parts, k, all));
  }
  for (const auto& gather : gathers) Wait(*gather);
}

void ExactTransport::ReduceScatter(const Call& call) {
  const Parts parts(call.counts, SizeOf(call.dtype), piece_bytes_);
  const std::byte* all = Bytes(call.input);
  std::unique_ptr<Transfer> incoming, next;
  for (int64_t k = 0; k < parts.num_pieces(); ++k) {
    incoming = k == 0 ? Scatter(parts, 0, all) : std::move(next);
    if (k + 1 < parts.num_pieces()) next = Scatter(parts, k + 1, all);
    Wait(*incoming);
    FoldPiece(call, parts, k, Bytes(call.output));
  }
}

void ExactTransport::AllGather(const Call& call) {
  const Parts parts(call.counts, SizeOf(call.dtype), piece_bytes_);
  std::byte* all = Bytes(call.output);
  std::byte* mine = all + parts.Begin(mesh_.rank());
  if (mine != call.input && parts.Bytes(mesh_.rank()) > 0) {
    std::memcpy(mine, call.input,
                static_cast<size_t>(parts.Bytes(mesh_.rank())));
  }
  Transfers gathers;
  for (int64_t k = 0; k < parts.num_pieces(); ++k) {
    gathers.push_back(Gather(parts, k, all));
  }
  for (const auto& gather : gathers) Wait(*gather);
}

void ExactTransport::Broadcast(const Call& call) {
  const int64_t elem_bytes = SizeOf(call.dtype);
  const Parts parts(EvenCounts(call.elems, elem_bytes, mesh_.ranks()),
                    elem_bytes, piece_bytes_);
  std::byte* all = Bytes(call.output);
  const auto piece_of = [&](int part, int peer, int64_t k) -> Piece {
    return {peer, all + parts.Begin(part) + parts.PieceBegin(k),
            parts.PieceBytes(part, k)};
  };
  Transfers deals, gathers;
  for (int64_t k = 0; k < parts.num_pieces(); ++k) {
    std::vector<Piece> sends, receives;
    if (mesh_.rank() != call.root) {
      receives.push_back(piece_of(mesh_.rank(), call.root, k));
    } else {
      for (int r = 0; r < mesh_.ranks(); ++r) {
        if (r != call.root) sends.push_back(piece_of(r, r, k));
      }
    }
    deals.push_back(Start(sends, receives, kScatterRound));
  }
  for (int64_t k = 0; k < parts.num_pieces(); ++k) {
    Wait(*deals[static_cast<size_t>(k)]);
    gathers.push_back(Gather(parts, k, all, call.root));
  }
  for (const auto& gather : gathers) Wait(*gather);
}

std::unique_ptr<Transfer> ExactTransport::Scatter(const Parts& parts,
                                                  int64_t piece,
                                                  const std::byte* input) {
  const auto needed = static_cast<size_t>(2 * mesh_.ranks() * piece_bytes_);
  if (scratch_.size() < needed) scratch_.resize(needed);
  std::vector<Piece> sends, receives;
  for (int r = 0; r < mesh_.ranks(); ++r) {
    if (r == mesh_.rank()) continue;
    sends.push_back({r,
                     const_cast<std::byte*>(input + parts.Begin(r) +
                                            parts.PieceBegin(piece)),
                     parts.PieceBytes(r, piece)});
    receives.push_back(
        {r, Scratch(piece, r), parts.PieceBytes(mesh_.rank(), piece)});
  }
  return Start(sends, receives, kScatterRound);
}

void ExactTransport::FoldPiece(const Call& call, const Parts& parts,
                               int64_t piece, std::byte* result) const {
  const int64_t bytes = parts.PieceBytes(mesh_.rank(), piece);
  if (bytes == 0) return;
  const std::byte* mine =
      Bytes(call.input) + parts.Begin(mesh_.rank()) + parts.PieceBegin(piece);
  std::vector<const void*> sources;
  for (int r = 0; r < mesh_.ranks(); ++r) {
    sources.push_back(r == mesh_.rank() ? mine : Scratch(piece, r));
  }
  void* destination = result + parts.PieceBegin(piece);
  Fold(call.dtype, call.reduce_op, sources, std::span(&destination, 1),
       {0, 0, bytes / SizeOf(call.dtype)});
}

std::unique_ptr<Transfer> ExactTransport::Gather(const Parts& parts,
                                                 int64_t piece, std::byte* all,
                                                 int except) {
  const auto piece_of = [&](int part, int peer) -> Piece {
    return {peer, all + parts.Begin(part) + parts.PieceBegin(piece),
            parts.PieceBytes(part, piece)};
  };
  std::vector<Piece> sends, receives;
  for (int r = 0; r < mesh_.ranks(); ++r) {
    if (r == mesh_.rank()) continue;
    if (r != except) sends.push_back(piece_of(mesh_.rank(), r));
    if (mesh_.rank() != except) receives.push_back(piece_of(r, r));
  }
  return Start(sends, receives, kGatherRound);
}

std::byte* ExactTransport::Scratch(int64_t piece, int peer) const {
  const int64_t slot = piece % 2 * mesh_.ranks() + peer;
  return const_cast<std::byte*>(scratch_.data()) + slot * piece_bytes_;
}

std::unique_ptr<Transfer> ExactTransport::Start(
    const std::vector<Piece>& sends, const std::vector<Piece>& receives,
    int round) {
  return mesh_.Start(sends, receives, tag_ + round, Mesh::Phase::kData);
}

void ExactTransport::Wait(Transfer& transfer) const {
  transfer.Wait(DeadlineAfter(timeout_));
}

}  // namespace collectives
