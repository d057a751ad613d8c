// A Mesh between threads of one process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/c10d/mesh.h"

namespace collectives {

// The meshes of all ranks. A message is copied when both sides have started
// it, so memory that is used too early or too late shows.
class LocalHub {
 public:
  explicit LocalHub(int ranks) : sent_bytes_(static_cast<size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r) {
      meshes_.push_back(std::make_unique<LocalMesh>(*this, r, ranks));
    }
  }

  Mesh& mesh(int rank) { return *meshes_[static_cast<size_t>(rank)]; }
  // What the rank has sent so far.
  int64_t sent_bytes(int rank) {
    const std::lock_guard lock(mutex_);
    return sent_bytes_[static_cast<size_t>(rank)];
  }

  // Runs `fn` for each rank on a thread of its own.
  void Run(const std::function<void(Mesh&)>& fn) {
    std::vector<std::thread> threads;
    for (const auto& mesh : meshes_) {
      threads.emplace_back([&fn, &mesh] { fn(*mesh); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  // One side of a message.
  struct Half {
    int rank = 0;
    Piece piece;
    bool is_done = false;
    bool is_wrong_size = false;
    bool is_lost = false;  // either side has closed
  };
  using HalfRef = std::shared_ptr<Half>;
  struct Link {
    std::deque<HalfRef> sends, receives;  // not both have any
  };
  using LinkKey = std::tuple<int, int, int>;  // from, to, tag

  class LocalTransfer final : public Transfer {
   public:
    LocalTransfer(LocalHub& hub, std::vector<HalfRef> halves)
        : hub_(hub), halves_(std::move(halves)) {}
    ~LocalTransfer() override {
      const std::lock_guard lock(hub_.mutex_);
      for (const HalfRef& half : halves_) hub_.Forget(half);
    }
    void Wait(int64_t deadline_ns) override {
      for (const HalfRef& half : halves_) hub_.Await(*half, deadline_ns);
    }

   private:
    LocalHub& hub_;
    std::vector<HalfRef> halves_;
  };

  class LocalMesh final : public Mesh {
   public:
    LocalMesh(LocalHub& hub, int rank, int ranks)
        : hub_(hub), rank_(rank), ranks_(ranks) {}
    int rank() const override { return rank_; }
    int ranks() const override { return ranks_; }
    std::unique_ptr<Transfer> Start(const std::vector<Piece>& sends,
                                    const std::vector<Piece>& receives, int tag,
                                    Phase) override {
      return hub_.Start(rank_, sends, receives, tag);
    }
    std::shared_ptr<void> Hold() override { return nullptr; }
    void Close() override { hub_.Close(rank_); }
    bool is_closed = false;

   private:
    LocalHub& hub_;
    const int rank_;
    const int ranks_;
  };

  std::unique_ptr<Transfer> Start(int rank, const std::vector<Piece>& sends,
                                  const std::vector<Piece>& receives, int tag) {
    const std::lock_guard lock(mutex_);
    if (IsClosed(rank)) {
      throw LinkError(LinkError::Kind::kClosed, 0, "closed on this side");
    }
    std::vector<HalfRef> halves;
    const auto add = [&](const Piece& piece) {
      if (piece.bytes == 0) return HalfRef();
      halves.push_back(std::make_shared<Half>(Half{rank, piece}));
      halves.back()->is_lost = IsClosed(piece.peer);
      return halves.back();
    };
    for (const Piece& piece : receives) {
      Link& link = links_[{piece.peer, rank, tag}];
      if (auto half = add(piece)) link.receives.push_back(std::move(half));
      Match(link);
    }
    for (const Piece& piece : sends) {
      Link& link = links_[{rank, piece.peer, tag}];
      if (auto half = add(piece)) link.sends.push_back(std::move(half));
      sent_bytes_[static_cast<size_t>(rank)] += piece.bytes;
      Match(link);
    }
    return std::make_unique<LocalTransfer>(*this, std::move(halves));
  }

  void Match(Link& link) {
    while (!link.sends.empty() && !link.receives.empty()) {
      Half& from = *link.sends.front();
      Half& to = *link.receives.front();
      if (from.piece.bytes == to.piece.bytes) {
        std::memcpy(to.piece.data, from.piece.data,
                    static_cast<size_t>(to.piece.bytes));
      } else {
        from.is_wrong_size = to.is_wrong_size = true;
      }
      from.is_done = to.is_done = true;
      link.sends.pop_front();
      link.receives.pop_front();
    }
    changed_.notify_all();
  }

  void Await(const Half& half, int64_t deadline_ns) {
    std::unique_lock lock(mutex_);
    const auto time = std::chrono::nanoseconds(deadline_ns - NowNs());
    const bool is_in_time = changed_.wait_for(
        lock, time, [&half] { return half.is_done || half.is_lost; });
    const int peer = half.piece.peer;
    if (half.is_wrong_size) {
      throw LinkError(LinkError::Kind::kLost, peer, "sizes differ");
    }
    if (half.is_done) return;
    if (!is_in_time) throw LinkError(LinkError::Kind::kTimeout, peer, "late");
    throw LinkError(
        IsClosed(half.rank) ? LinkError::Kind::kClosed : LinkError::Kind::kLost,
        peer, "closed");
  }

  void Close(int rank) {
    const std::lock_guard lock(mutex_);
    meshes_[static_cast<size_t>(rank)]->is_closed = true;
    for (auto& [key, link] : links_) {
      if (std::get<0>(key) != rank && std::get<1>(key) != rank) continue;
      for (const HalfRef& half : link.sends) half->is_lost = true;
      for (const HalfRef& half : link.receives) half->is_lost = true;
    }
    changed_.notify_all();
  }

  // Nobody touches its memory any more.
  void Forget(const HalfRef& half) {
    for (auto& [key, link] : links_) {
      std::erase(link.sends, half);
      std::erase(link.receives, half);
    }
  }

  bool IsClosed(int rank) const {
    return meshes_[static_cast<size_t>(rank)]->is_closed;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<LinkKey, Link> links_;
  std::vector<int64_t> sent_bytes_;
  std::vector<std::unique_ptr<LocalMesh>> meshes_;
};

}  // namespace collectives
