// libtorch's thread-local state, in which a segment ran and runs again.
#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace trainsys {

// The part of it that decides what operations compute: dispatch keys (autocast
// is one of them), autograd's modes, the dtype that autocast casts to on the
// CPU. Not all of at::ThreadLocalState: that holds a profiler's callbacks too,
// which may be gone by the second run.
class ForwardState {
 public:
  // As it is on this thread now.
  ForwardState();

 private:
  friend class ForwardStateScope;

  c10::impl::LocalDispatchKeySet keys_;
  c10::AutogradState autograd_;
  c10::ScalarType autocast_dtype_;
};

// While it lives, the thread has that state, with autocast's cache of cast
// weights switched off: a second run's inputs are leaves, which the cache would
// hold on to. A cast saves nothing, so both runs save the same.
class ForwardStateScope {
 public:
  explicit ForwardStateScope(const ForwardState& state);
  ~ForwardStateScope();
  ForwardStateScope(const ForwardStateScope&) = delete;
  ForwardStateScope& operator=(const ForwardStateScope&) = delete;

 private:
  const ForwardState found_;
  const bool has_found_cache_;
};

}  // namespace trainsys
