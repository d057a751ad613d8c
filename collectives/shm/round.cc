#include "collectives/shm/round.h"

#include <algorithm>
#include <thread>

#include "collectives/record/clock.h"

namespace collectives {
namespace {

constexpr uintptr_t kOpen = 0;
constexpr uintptr_t kMatched = 1;
constexpr uintptr_t kDone = 2;

// Chunks of bytes / (2 cores), within 8 to 128 KiB: enough of them that two
// threads end together, few enough that claiming costs nothing.
int64_t ChunkBytes(int64_t bytes) {
  static const int64_t cores =
      std::max<int64_t>(1, std::thread::hardware_concurrency());
  constexpr int64_t kCacheLine = 64;
  const int64_t chunk =
      std::clamp<int64_t>(bytes / (2 * cores), 8 << 10, 128 << 10);
  return chunk / kCacheLine * kCacheLine;
}

}  // namespace

RoundRef::RoundRef(Round* round) : round_(round) {
  // Relaxed: whoever adds a reference holds one already.
  if (round_) round_->references_.fetch_add(1, std::memory_order_relaxed);
}

RoundRef::~RoundRef() {
  if (round_) round_->Release();
}

// A loop, not a chain of destructors: a rank may be thousands of rounds ahead.
void Round::Release() {
  Round* round = this;
  // (G) acq_rel, pairs with itself: the last owner sees what every other owner
  // did to the round before it frees the memory.
  while (round &&
         round->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    // Relaxed: (G) has made every owner's writes visible.
    Round* next = round->next_.exchange(nullptr, std::memory_order_relaxed);
    delete round;
    round = next;
  }
}

Round::~Round() {
  // Relaxed: the last owner, see (G).
  const uintptr_t state = state_.load(std::memory_order_relaxed);
  if (state > kDone) delete reinterpret_cast<const Failure*>(state);
}

RoundRef Round::Next() {
  // (H) acquire, pairs with (I): the other rank's new round is constructed.
  Round* next = next_.load(std::memory_order_acquire);
  if (next == nullptr) {
    auto made = std::make_unique<Round>(ranks(), sequence_ + 1);
    // Relaxed: not published yet.
    made->references_.store(1, std::memory_order_relaxed);
    // (I) release, pairs with (H): publishes the constructed round; on
    // failure acquire, as (H).
    if (next_.compare_exchange_strong(next, made.get(),
                                      std::memory_order_release,
                                      std::memory_order_acquire)) {
      next = made.release();
    }
  }
  return RoundRef(next);
}

bool Round::Arrive(int rank, Call call) {
  Post& mine = posts_[static_cast<size_t>(rank)];
  mine.call = std::move(call);
  // (J) release, pairs with (K): publishes the call to whoever names the
  // missing ranks.
  mine.has_arrived.store(true, std::memory_order_release);
  // (A) acq_rel, pairs with itself: publishes this rank's call; the last rank
  // sees all of them.
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 != ranks()) {
    return false;
  }
  if (!Match()) return false;
  if (num_chunks_ > 1) return true;
  MoveChunks();
  return false;
}

bool Round::has_arrived(int rank) const {
  // (K) acquire, pairs with (J).
  return post(rank).has_arrived.load(std::memory_order_acquire);
}

bool Round::Match() {
  std::vector<const Call*> calls;
  for (const Post& p : posts_) calls.push_back(&p.call);
  std::string mismatch = Mismatch(calls);
  if (!mismatch.empty()) {
    Fail({Failure::Kind::kMismatch, 0, false, std::move(mismatch)});
    return false;
  }
  Plan(calls);
  if (!Settle(kMatched)) return false;  // given up before the last rank came
  if (num_chunks_ == 0) Finish();
  return true;
}

void Round::Plan(const std::vector<const Call*>& calls) {
  movement_ = Movement(calls);
  const int64_t elems = movement_.elems();
  if (elems > 0) {
    const int64_t elem_bytes = movement_.elem_bytes();
    chunk_elems_ = ChunkBytes(elems * elem_bytes) / elem_bytes;
    num_chunks_ = (elems + chunk_elems_ - 1) / chunk_elems_;
  }
  // Relaxed: published by "matched" (B).
  chunks_left_.store(num_chunks_, std::memory_order_relaxed);
  if (call(0).operation == Operation::kDuplicate) {
    const RoundRef head(new Round(ranks(), ~uint64_t{0}));  // before round 0
    for (Post& p : posts_) p.child = head;
  }
  matched_ns_ = NowNs();
}

bool Round::Settle(uintptr_t state) {
  uintptr_t open = kOpen;
  // (B) release, pairs with (C): publishes the plan, or the failure. Relaxed
  // on failure: nothing is read then.
  if (!state_.compare_exchange_strong(open, state, std::memory_order_release,
                                      std::memory_order_relaxed)) {
    return false;
  }
  word_.NotifyAll();
  return true;
}

void Round::Fail(Failure failure) {
  auto made = std::make_unique<Failure>(std::move(failure));
  if (Settle(reinterpret_cast<uintptr_t>(made.get()))) made.release();
}

void Round::MoveChunks() {
  for (;;) {
    // (D) relaxed: the counter hands out numbers; the data was published by
    // "matched".
    const int64_t chunk = next_chunk_.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= num_chunks_) return;
    const int64_t begin = chunk * chunk_elems_;
    movement_.Run(begin, std::min(chunk_elems_, movement_.elems() - begin));
    // (E) acq_rel, pairs with itself: publishes this chunk's data to the last
    // mover, which publishes all of it (F).
    if (chunks_left_.fetch_sub(1, std::memory_order_acq_rel) == 1) Finish();
  }
}

void Round::Finish() {
  done_ns_ = NowNs();
  // (F) release, pairs with (C): publishes the moved data and done_ns_. No
  // compare-and-swap: nobody else leaves "matched".
  state_.store(kDone, std::memory_order_release);
  word_.NotifyAll();
}

Round::Stage Round::stage() const {
  // (C) acquire, pairs with (B) and (F).
  const uintptr_t state = state_.load(std::memory_order_acquire);
  if (state == kOpen) return Stage::kOpen;
  if (state == kMatched) return Stage::kMatched;
  return state == kDone ? Stage::kDone : Stage::kFailed;
}

const Failure& Round::failure() const {
  // (C) acquire, pairs with (B).
  return *reinterpret_cast<const Failure*>(
      state_.load(std::memory_order_acquire));
}

}  // namespace collectives
