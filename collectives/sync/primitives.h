// Where every protocol of collectives/ takes its atomics and its ways to wait
// from: one name space, so that a model checker can put its own in their place
// and run the very same headers.
#pragma once

#ifdef COLLECTIVES_SYNC_PRIMITIVES
#include COLLECTIVES_SYNC_PRIMITIVES
#else

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace collectives::sync {

template <typename T>
using atomic = std::atomic<T>;
using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

using Mutex = std::mutex;

// Tells the core that it spins; tens of nanoseconds.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Lets another thread have this core.
void Yield();
// Before a thread sleeps: ../../docs/collectives.md, "Waiting".
inline constexpr int kYields = 10;

// Sleeps while `word` is `expected`, for about `limit` at most; may wake for
// no reason.
void FutexWait(atomic<uint32_t>& word, uint32_t expected,
               std::chrono::nanoseconds limit);
void FutexWakeAll(atomic<uint32_t>& word);

}  // namespace collectives::sync

#endif
