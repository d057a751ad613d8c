// Every byte of a rank, by what it is for.
//
// All memory of CPU tensors comes from libtorch's allocator. The first ledger
// of the process puts one in front of it that knows, of each allocation, whose
// it is (the LedgerScope of the thread that made it) and what for (that
// thread's CategoryScope, or what Attribute said later). Nothing is guessed:
// the sum of the categories is the total, always.
//
// Example:
//   MemoryLedger ledger;
//   const LedgerScope mine(ledger);
//   const SavedBytesScope saved(parameters);  // tells activations apart
//   at::Tensor loss = model->Loss(batch);
//   EXPECT_EQ(ledger.Current()[MemoryCategory::kActivation], expected);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainsys/memory/category.h"
#include "trainsys/memory/memory_event.h"

namespace trainsys {

class MemoryAccount;

// The largest total there was, how it was made up then, and the largest value
// of each category, whenever that was.
struct MemoryPeak {
  int64_t bytes = 0;
  MemorySplit split;
  MemorySplit of_category;
};

// What a rank held when it last passed a named point.
struct MemoryMark {
  std::string name;
  MemorySplit split;
};

// The memory of one rank.
//
// Units: bytes asked for, without the 64 that the ledger puts before each.
// Threads: any thread. A free on another thread is booked here. The first one
//   of the process is made before other threads use tensors: it sets libtorch's
//   allocator, which is a plain global.
// Lifetime: allocations may outlive the ledger.
// Cost: about 0.1 us an allocation, and 64 bytes.
// Not seen: memory that does not come from libtorch's allocator (oneDNN's and
//   the BLAS's scratch, from_blob, the collectives' own buffers); tensors made
//   before the first ledger of the process.
class MemoryLedger {
 public:
  static constexpr size_t kDefaultEvents = size_t{1} << 14;

  // Keeps the newest `event_capacity` events; 0 keeps none.
  explicit MemoryLedger(size_t event_capacity = kDefaultEvents);
  ~MemoryLedger();
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  MemorySplit Current() const;
  // Allocated and not freed, counted apart from all categories.
  int64_t LiveBytes() const;
  MemoryPeak Peak() const;
  // The peak starts again from what there is now.
  void ResetPeak();
  // What was held at the point of that name, when it was last marked.
  // Errors: Error if it never was.
  MemorySplit At(std::string_view name) const;
  std::vector<MemoryMark> Marks() const;    // in the order first marked
  std::vector<MemoryEvent> Events() const;  // oldest first
  uint64_t lost_events() const;             // older than those

 private:
  friend class LedgerScope;
  friend MemoryLedger& ProcessLedger();
  explicit MemoryLedger(std::shared_ptr<MemoryAccount> account);

  std::shared_ptr<MemoryAccount> account_;
};

// Of allocations that were made outside every LedgerScope.
MemoryLedger& ProcessLedger();

// The thread's allocations are `ledger`'s while the scope lives. Nests.
// Threads: the constructing thread only.
class LedgerScope {
 public:
  explicit LedgerScope(const MemoryLedger& ledger);
  ~LedgerScope();
  LedgerScope(const LedgerScope&) = delete;
  LedgerScope& operator=(const LedgerScope&) = delete;

 private:
  const std::shared_ptr<MemoryAccount> previous_;
};

// The thread's allocations are of that category while the scope lives; outside
// every scope they are temporaries. Nests.
class CategoryScope {
 public:
  explicit CategoryScope(MemoryCategory category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  const MemoryCategory previous_;
};

// What a thread's allocations are booked with: to be taken to another thread or
// to a later time.
struct MemoryContext {
  std::shared_ptr<MemoryAccount> account;  // null outside every LedgerScope
  MemoryCategory category = MemoryCategory::kTemporary;
};
MemoryContext CurrentMemoryContext();

class MemoryContextScope {
 public:
  explicit MemoryContextScope(MemoryContext context);
  ~MemoryContextScope();
  MemoryContextScope(const MemoryContextScope&) = delete;
  MemoryContextScope& operator=(const MemoryContextScope&) = delete;

 private:
  const MemoryContext previous_;
};

// From now on the tensor's whole storage is of that category, but for
// `padding_bytes` of it, which are padding. Nothing happens to memory that the
// ledger does not know.
void Attribute(const at::Tensor& tensor, MemoryCategory category,
               int64_t padding_bytes = 0);

// Marks a named point for the thread's ledger; nothing outside LedgerScopes.
void MarkMemory(std::string_view name);

// A graph keeps the storage for backward, or lets it go: temporaries are
// activations for as long. Called by SavedBytesScope.
void HoldForBackward(const c10::StorageImpl& storage);
void ReleaseFromBackward(const c10::StorageImpl& storage);

}  // namespace trainsys
