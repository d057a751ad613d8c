#include "collectives/c10d/gloo_mesh.h"

#include <ATen/ops/from_blob.h>
#include <signal.h>

#include <algorithm>
#include <csignal>
#include <mutex>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "collectives/c10d/gloo_group.h"
#include "collectives/c10d/libtorch_text.h"
#include "collectives/c10d/store_holder.h"
#include "collectives/errors.h"
#include "collectives/rank/failure.h"
#include "collectives/record/clock.h"

namespace collectives {
namespace {

using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using TorchWork = c10::intrusive_ptr<c10d::Work>;

class GlooTransfer;

// The transfers that Close ends early, and whether it has been called.
struct Abortable {
  std::mutex mutex;
  bool is_closed = false;
  std::set<GlooTransfer*> transfers;

  // Under the mutex.
  void ThrowIfClosed() const {
    if (is_closed) {
      throw LinkError(LinkError::Kind::kClosed, 0, "closed on this side");
    }
  }
};

class GlooTransfer final : public Transfer {
 public:
  // Stays connected as long as it lives.
  GlooTransfer(ProcessGroup group, std::shared_ptr<Abortable> abortable)
      : group_(std::move(group)), abortable_(std::move(abortable)) {}
  ~GlooTransfer() override {
    const std::lock_guard lock(abortable_->mutex);
    abortable_->transfers.erase(this);
  }

  // `post`: recv or send of a process group.
  template <typename Post>
  void Add(const Piece& piece, Post post) {
    if (piece.bytes == 0) return;
    std::vector<at::Tensor> tensors{
        at::from_blob(piece.data, {piece.bytes}, at::kByte)};
    try {
      links_.push_back({piece.peer, post(*group_, tensors)});
    } catch (const std::exception& e) {
      throw LinkError(LinkError::Kind::kLost, piece.peer, FirstLine(e.what()));
    }
  }

  void Wait(int64_t deadline_ns) override {
    for (const Link& link : links_) Wait(link, deadline_ns);
  }

  // Under the mutex.
  void Abort() {
    for (const Link& link : links_) link.work->abort();
  }

 private:
  struct Link {
    int peer;
    TorchWork work;
  };

  static void Wait(const Link& link, int64_t deadline_ns) {
    // 0 would mean "for ever".
    const int64_t left_ms =
        std::max<int64_t>(1, (deadline_ns - NowNs()) / 1'000'000);
    try {
      if (link.work->wait(std::chrono::milliseconds(left_ms))) return;
    } catch (const std::exception& e) {
      const bool is_late = NowNs() + 1'000'000 >= deadline_ns;
      throw LinkError(
          is_late ? LinkError::Kind::kTimeout : LinkError::Kind::kLost,
          link.peer, FirstLine(e.what()));
    }
    throw LinkError(LinkError::Kind::kClosed, link.peer, "closed on this side");
  }

  ProcessGroup group_;
  std::shared_ptr<Abortable> abortable_;
  std::vector<Link> links_;
};

class GlooMesh final : public Mesh {
 public:
  GlooMesh(int rank, int ranks, ProcessGroup group)
      : rank_(rank),
        ranks_(ranks),
        group_(std::make_shared<ProcessGroup>(std::move(group))),
        held_(group_) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  std::unique_ptr<Transfer> Start(const std::vector<Piece>& sends,
                                  const std::vector<Piece>& receives, int tag,
                                  Phase phase) override {
    auto transfer = std::make_unique<GlooTransfer>(*Group(phase), abortable_);
    for (const Piece& piece : receives) {
      transfer->Add(piece, [&](auto& group, auto& tensors) {
        return group.recv(tensors, piece.peer, tag);
      });
    }
    for (const Piece& piece : sends) {
      transfer->Add(piece, [&](auto& group, auto& tensors) {
        return group.send(tensors, piece.peer, tag);
      });
    }
    if (phase == Phase::kMatching) {
      const std::lock_guard lock(abortable_->mutex);
      abortable_->ThrowIfClosed();
      abortable_->transfers.insert(transfer.get());
    }
    return transfer;
  }

  std::shared_ptr<void> Hold() override { return Group(Phase::kMatching); }

  void Close() override {
    std::shared_ptr<ProcessGroup> last;  // destroyed without the mutex
    const std::lock_guard lock(abortable_->mutex);
    abortable_->is_closed = true;
    for (GlooTransfer* transfer : abortable_->transfers) transfer->Abort();
    last = std::move(group_);
  }

 private:
  // Data still moves over what is held, though the mesh is closed.
  std::shared_ptr<ProcessGroup> Group(Phase phase) {
    const std::lock_guard lock(abortable_->mutex);
    if (phase == Phase::kMatching) abortable_->ThrowIfClosed();
    if (auto group = held_.lock()) return group;
    throw LinkError(LinkError::Kind::kClosed, 0, "closed on this side");
  }

  const int rank_;
  const int ranks_;
  std::shared_ptr<Abortable> abortable_ = std::make_shared<Abortable>();
  std::shared_ptr<ProcessGroup> group_;  // under the mutex; null once closed
  const std::weak_ptr<ProcessGroup> held_;
};

std::string HereKey(int rank) { return "here/" + std::to_string(rank); }

// Who has not come, as far as the store can say.
std::string Absent(const std::shared_ptr<Store>& store, int ranks) {
  const auto absent = std::make_shared<std::vector<int>>();
  const auto look = [=] {
    for (int r = 0; r < ranks; ++r) {
      if (!store->TryGet(HereKey(r))) absent->push_back(r);
    }
  };
  try {
    if (!RunWithDeadline(std::chrono::seconds(2), look)) {
      return "and the store of " + store->host() +
             " does not say who is missing";
    }
  } catch (const std::exception& e) {
    return e.what();
  }
  if (absent->empty()) return "all ranks have come, but cannot be connected";
  return "waiting for " + RankList(*absent) + " of " + std::to_string(ranks);
}

// Gloo writes to connections that the peer may have closed: an error then, not
// the end of the process. A handler of the user's own stays.
void IgnoreBrokenPipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace

std::unique_ptr<Mesh> ConnectGlooMesh(Store& store, int rank, int ranks,
                                      const std::string& host,
                                      std::chrono::nanoseconds timeout) {
  IgnoreBrokenPipes();
  const auto keys = store.WithPrefix("");
  const auto group = std::make_shared<ProcessGroup>();
  const auto connect = [=] {
    keys->Set(HereKey(rank), "");
    *group = MakeGlooGroup(keys->holder().store, rank, ranks, host, timeout);
  };
  std::string why = ": no answer";
  try {
    if (RunWithDeadline(timeout, connect)) {
      return std::make_unique<GlooMesh>(rank, ranks, std::move(*group));
    }
  } catch (const std::exception& e) {
    why = ": " + FirstLine(e.what());
  }
  throw TimeoutError("cannot connect within " + TimeText(timeout) + ", " +
                     Absent(keys, ranks) + why);
}

}  // namespace collectives
