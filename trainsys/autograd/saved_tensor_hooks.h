// The one seam to libtorch's saved-variable hooks: while a scope lives, every
// tensor that autograd saves for backward on this thread goes to a hook object
// of the innermost scope's factory.
//
// libtorch asks its default engine for these hooks and offers no other place
// in C++, so the first scope of the process installs an engine that differs
// from libtorch's in this one answer only.
#pragma once

#include <functional>
#include <memory>

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace trainsys {

// Makes the hooks of one saved tensor. Called on the scope's thread only.
using SavedTensorHookFactory =
    std::function<std::unique_ptr<torch::autograd::SavedVariableHooks>()>;

// Threads: the rank's own thread. Scopes of a thread end in reverse order.
class SavedTensorHookScope {
 public:
  explicit SavedTensorHookScope(SavedTensorHookFactory factory);
  ~SavedTensorHookScope();
  SavedTensorHookScope(const SavedTensorHookScope&) = delete;
  SavedTensorHookScope& operator=(const SavedTensorHookScope&) = delete;

  const SavedTensorHookFactory& factory() const { return factory_; }

 private:
  friend class OutsideHookScope;

  const SavedTensorHookFactory factory_;
  const SavedTensorHookScope* const outer_;
};

// While it lives, tensors are saved as if `scope` and all scopes inside it did
// not exist. A hook that keeps its tensor as a SavedVariable made here hands it
// to the enclosing scopes, and so scopes of different kinds nest freely.
class OutsideHookScope {
 public:
  explicit OutsideHookScope(const SavedTensorHookScope& scope);
  ~OutsideHookScope();
  OutsideHookScope(const OutsideHookScope&) = delete;
  OutsideHookScope& operator=(const OutsideHookScope&) = delete;

 private:
  const SavedTensorHookScope* const innermost_;
};

}  // namespace trainsys
