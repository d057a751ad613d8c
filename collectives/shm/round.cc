#include "collectives/shm/round.h"

#include <algorithm>
#include <utility>

#include "collectives/bare.h"
#include "collectives/record/clock.h"
#include "collectives/shm/cores.h"
#include "collectives/shm/shm_channel.h"

namespace collectives {
namespace {

// Up to here the last rank moves everything by itself, at once, rather than
// have sleepers and workers woken; who spins may help. Where a rank has posted
// asynchronously, less: it may be that one's call which does not return.
bool IsMovedAtOnce(int64_t bytes, int ranks, bool has_async) {
  constexpr int64_t kMost = 64 << 10;
  return bytes <= kMost && (!has_async || bytes * ranks <= 4 * kMost);
}

// Chunks of bytes / (2 cores), within 8 to 128 KiB: enough of them that two
// threads end together, few enough that claiming costs nothing.
int64_t ChunkBytes(int64_t bytes) {
  constexpr int64_t kCacheLine = 64;
  const int64_t chunk =
      std::clamp<int64_t>(bytes / (2 * NumCores()), 8 << 10, 128 << 10);
  return chunk / kCacheLine * kCacheLine;
}

}  // namespace

Round::Round(int ranks) : posts_(static_cast<size_t>(ranks)) {
  for (const Post& p : posts_) calls_.push_back(&p.call);
}

void Round::Renew(const Round* before) {
  sequence_ = before ? before->sequence_ + 1 : 0;
  meeting_.Reset();
  child_.reset();
}

bool Round::Arrive(int rank, Call&& call, int64_t posted_ns, int home) {
  Post& mine = posts_[static_cast<size_t>(rank)];
  mine.call = std::move(call);
  mine.posted_ns = posted_ns;
  mine.arrived.Pass(sequence_ + 1);  // for whoever names the missing ranks
  if (!meeting_.Arrive(ranks()) || !Match()) return false;
  if (num_chunks() == 0) {
    Finish();
    return false;
  }
  const int64_t bytes = movement_.elems() * movement_.elem_bytes();
  if (IsMovedAtOnce(bytes, ranks(), has_async_)) {
    MoveChunks(home);
    return false;
  }
  word().NotifyAll();
  return true;
}

bool Round::Match() {
  for (const Call* call : calls_) {
    if (kIsBare || Matches(*calls_[0], *call)) continue;
    Fail({Failure::Kind::kMismatch, 0, false, Mismatch(calls_)});
    return false;
  }
  Plan();
  return meeting_.Match();  // unless it was given up before the last rank came
}

void Round::Plan() {
  has_async_ = false;
  matched_ns_ = 0;
  for (const Post& p : posts_) {
    has_async_ = has_async_ || p.call.is_async;
    matched_ns_ = std::max(matched_ns_, p.posted_ns);
  }
  movement_.Plan(calls_);
  const int64_t elems = movement_.elems();
  int64_t chunks = 0;
  if (elems > 0) {
    const int64_t elem_bytes = movement_.elem_bytes();
    chunk_elems_ = ChunkBytes(elems * elem_bytes) / elem_bytes;
    chunks = (elems + chunk_elems_ - 1) / chunk_elems_;
  }
  chunks_.Open(chunks, std::min(ranks(), NumCores()));
  if (call(0).operation == Operation::kDuplicate) {
    child_ = std::make_shared<ShmChannel>(call(0).label, ranks());
  }
}

void Round::MoveChunks(int home) {
  const auto move = [this](int64_t chunk) {
    const int64_t begin = chunk * chunk_elems_;
    movement_.Run(begin, std::min(chunk_elems_, movement_.elems() - begin));
  };
  chunks_.Drain(home, move, [this] { Finish(); });
}

void Round::Finish() {
  done_ns_ = kIsBare ? 0 : NowNs();
  meeting_.Finish();
}

}  // namespace collectives
