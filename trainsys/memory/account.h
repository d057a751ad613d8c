// The books of one rank's memory. What ledger.cc and ledger_allocator.cc share;
// not for use elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "trainsys/memory/category.h"
#include "trainsys/memory/ledger.h"

namespace trainsys {

// One allocation. Lies in the 64 bytes before its data, so that a free on any
// thread finds the account that pays. All but `account` and `bytes`, which
// never change, are guarded by the account's mutex.
struct alignas(64) MemoryBlock {
  std::shared_ptr<MemoryAccount> account;
  int64_t bytes = 0;
  int64_t padding_bytes = 0;  // the part that is booked as padding
  int32_t num_holds = 0;      // by graphs, for backward
  MemoryCategory category = MemoryCategory::kTemporary;
};
static_assert(sizeof(MemoryBlock) == 64, "the data must stay aligned to 64");

// Threads: any thread.
class MemoryAccount {
 public:
  explicit MemoryAccount(size_t event_capacity)
      : event_capacity_(event_capacity) {}

  void Allocate(const MemoryBlock& block);
  void Free(const MemoryBlock& block);
  void Attribute(MemoryBlock& block, MemoryCategory category,
                 int64_t padding_bytes);
  void Hold(MemoryBlock& block);
  void Release(MemoryBlock& block);
  void Mark(std::string_view name);

  MemorySplit Current() const;
  int64_t LiveBytes() const;
  MemoryPeak Peak() const;
  void ResetPeak();
  std::vector<MemoryMark> Marks() const;
  std::vector<MemoryEvent> Events() const;
  uint64_t lost_events() const;

 private:
  using Category = std::optional<MemoryCategory>;

  // Books the block's bytes from one category to another; null is outside.
  void Move(const MemoryBlock& block, Category from, Category to);
  void AddEvent(const MemoryBlock& block, Category from, Category to);
  void UpdatePeak();

  const size_t event_capacity_;
  mutable std::mutex mutex_;  // guards all below
  MemorySplit current_;
  int64_t live_bytes_ = 0;
  MemoryPeak peak_;
  std::vector<MemoryMark> marks_;
  std::vector<MemoryEvent> events_;  // a ring once it is full
  uint64_t num_events_ = 0;
};

}  // namespace trainsys
