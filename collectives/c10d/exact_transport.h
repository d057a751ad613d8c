// Moves the data of matched calls over a mesh, with the bits of every other
// backend.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/c10d/mesh.h"
#include "collectives/c10d/transport.h"
#include "collectives/call.h"

namespace collectives {

// Each rank has a part of the buffer. A reduction sends every part to its
// rank, which folds all ranks' data in rank order, as Fold does, and sends the
// result to all: piece by piece, so that sending and folding overlap and
// memory is small. What a rank sends, of S bytes:
//   all-reduce      2S(N-1)/N, as a ring would, in 2 rounds instead of 2(N-1)
//   reduce-scatter  S(N-1)/N, 1 round
//   all-gather      (N-1) times its own part, 1 round
//   broadcast       the root deals out the parts and all gather them: the root
//                   2S(N-1)/N, the others S(N-2)/N, 2 rounds
// Memory: 2(N-1) pieces, kept, for reductions.
class ExactTransport final : public Transport {
 public:
  // Of this size, so that all scratch memory stays near 16 MiB up to 128 ranks.
  static int64_t PieceBytes(int ranks) {
    return std::clamp<int64_t>((int64_t{8} << 20) / ranks, 64 << 10, 1 << 20) /
           64 * 64;
  }

  // `tag` and the next one are this transport's own. `timeout`: how long a
  // piece may take. Lifetime: the mesh outlives it.
  ExactTransport(Mesh& mesh, int tag, std::chrono::nanoseconds timeout)
      : mesh_(mesh),
        tag_(tag),
        timeout_(timeout),
        piece_bytes_(PieceBytes(mesh.ranks())) {}

  void Run(const Call& call) override;

 private:
  class Parts;
  using Transfers = std::vector<std::unique_ptr<Transfer>>;

  void AllReduce(const Call& call);
  void ReduceScatter(const Call& call);
  void AllGather(const Call& call);
  void Broadcast(const Call& call);

  // Piece number `piece` of every part...
  // ... of `input`, to the part's rank: what comes lies in scratch_.
  std::unique_ptr<Transfer> Scatter(const Parts& parts, int64_t piece,
                                    const std::byte* input);
  // ... this rank's, folded over all ranks, to `result`.
  void FoldPiece(const Call& call, const Parts& parts, int64_t piece,
                 std::byte* result) const;
  // ... of `all`, from its rank to the others but `except`.
  std::unique_ptr<Transfer> Gather(const Parts& parts, int64_t piece,
                                   std::byte* all, int except = -1);

  std::byte* Scratch(int64_t piece, int peer) const;
  std::unique_ptr<Transfer> Start(const std::vector<Piece>& sends,
                                  const std::vector<Piece>& receives,
                                  int round);
  void Wait(Transfer& transfer) const;

  Mesh& mesh_;
  const int tag_;
  const std::chrono::nanoseconds timeout_;
  const int64_t piece_bytes_;
  // For each of two pieces under way, one from each rank.
  std::vector<std::byte> scratch_;
};

}  // namespace collectives
