// A collective in flight, as one rank sees it.
#pragma once

#include <functional>
#include <memory>

namespace collectives {

// Move-only handle. Threads: the rank's own thread. An empty Work is done.
//
// Lifetime: the destructor waits, as Wait does but without throwing, so that
// nobody reads or writes the buffers after it. While an exception unwinds it
// does not wait for peers: a call that is not yet matched is withdrawn, and
// the peers' Wait throws PeerFailed.
//
// Example:
//   Work work = comm.StartAllReduce(gradients, ReduceOp::kAverage, "bucket 0");
//   ... compute ...
//   work.Wait();
class Work {
 public:
  // What a backend implements; the same contract as Work's methods.
  class State {
   public:
    virtual ~State() = default;
    virtual bool IsDone() = 0;
    virtual void Wait() = 0;
    virtual void OnDone(std::function<void()> fn) = 0;
  };

  Work() = default;
  explicit Work(std::unique_ptr<State> state) : state_(std::move(state)) {}

  // True once Wait would not block, be it for success or for an error.
  // Never blocks, runs no continuation.
  bool IsDone() const { return !state_ || state_->IsDone(); }

  // Blocks until the collective is done, helping to move data meanwhile. May
  // be called again.
  // Errors: MismatchError, TimeoutError, PeerFailed; again on each call. After
  // one of them the buffers are as they were before the call, unless a peer's
  // process died while its data moved.
  void Wait() {
    if (state_) state_->Wait();
  }

  // Runs `fn` once, never as recomputation, on the rank's own thread, at the
  // rank's first call or wait after the collective is done; at once if the Work
  // is empty. Never inside another such function; those of one channel run in
  // the order of their collectives. `fn` may post, on a channel of its own, and
  // wait; what it throws comes out of that call or wait. Not run if the
  // collective fails, an exception destroys the Work, or the rank's function
  // has returned.
  void OnDone(std::function<void()> fn) {
    if (state_) {
      state_->OnDone(std::move(fn));
    } else {
      fn();
    }
  }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace collectives
