// Counts the bytes that autograd saves for backward, where it saves them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainsys/autograd/saved_tensor_hooks.h"

namespace trainsys {

// Counts what the thread's operations save while the scope lives. Scopes nest:
// the outer one counts what the inner one counts. In a MemoryLedger they are
// activations for as long as they are kept. A tensor that an enclosing
// Checkpoint drops is counted here as if it were kept.
//
// Units: bytes.
// Threads: construct, read and destroy on one thread. A saved tensor that is
//   freed on another thread, or after the scope has ended, is booked here.
// Cost: no copies; about one small allocation and one lock a saved tensor.
// Errors: as without the scope, backward refuses a saved tensor that was
//   modified in place.
//
// Example:
//   SavedBytesScope saved(module->parameters());
//   at::Tensor loss = module->forward(x).square().mean();
//   report(saved.raw_bytes(), saved.distinct_bytes());
class SavedBytesScope {
 public:
  // Storages of `parameters` are left out of the distinct counts. Pass them
  // in the storage they have in forward (after any flattening).
  explicit SavedBytesScope(const std::vector<at::Tensor>& parameters = {});
  ~SavedBytesScope();

  // Every tensor saved so far, elements x element size, repeats and parameters
  // included: what a saved-tensors hook sees. Never shrinks. Tensors that a
  // recomputed segment saves again are not in it.
  int64_t raw_bytes() const;

  // Every storage that is saved now, once and whole, parameters apart. A
  // recomputed segment counts while its tensors live.
  int64_t distinct_bytes() const;

  // The largest value that distinct_bytes() has had.
  int64_t peak_distinct_bytes() const;

  class Account;

 private:
  const std::shared_ptr<Account> account_;
  SavedTensorHookScope scope_;
};

}  // namespace trainsys
