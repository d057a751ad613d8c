#include "trainsys/memory/account.h"

#include <algorithm>
#include <string>

#include "collectives/record/clock.h"

namespace trainsys {
namespace {

// A temporary that a graph holds for backward is an activation for as long.
MemoryCategory BookedAs(const MemoryBlock& block) {
  const bool is_saved =
      block.num_holds > 0 && block.category == MemoryCategory::kTemporary;
  return is_saved ? MemoryCategory::kActivation : block.category;
}

}  // namespace

void MemoryAccount::Allocate(const MemoryBlock& block) {
  const std::lock_guard lock(mutex_);
  live_bytes_ += block.bytes;
  Move(block, {}, BookedAs(block));
  UpdatePeak();
}

void MemoryAccount::Free(const MemoryBlock& block) {
  const std::lock_guard lock(mutex_);
  live_bytes_ -= block.bytes;
  Move(block, BookedAs(block), {});
}

void MemoryAccount::Attribute(MemoryBlock& block, MemoryCategory category,
                              int64_t padding_bytes) {
  const std::lock_guard lock(mutex_);
  const MemoryCategory before = BookedAs(block);
  Move(block, before, {});
  block.category = category;
  block.padding_bytes = padding_bytes;
  Move(block, {}, BookedAs(block));
  UpdatePeak();
}

void MemoryAccount::Hold(MemoryBlock& block) {
  const std::lock_guard lock(mutex_);
  const MemoryCategory before = BookedAs(block);
  ++block.num_holds;
  if (BookedAs(block) == before) return;
  Move(block, before, BookedAs(block));
  UpdatePeak();
}

void MemoryAccount::Release(MemoryBlock& block) {
  const std::lock_guard lock(mutex_);
  if (block.num_holds == 0) return;  // a later block at the same address
  const MemoryCategory before = BookedAs(block);
  --block.num_holds;
  if (BookedAs(block) == before) return;
  Move(block, before, BookedAs(block));
  UpdatePeak();
}

void MemoryAccount::Move(const MemoryBlock& block, Category from, Category to) {
  if (from) {
    current_[*from] -= block.bytes - block.padding_bytes;
    current_[MemoryCategory::kPadding] -= block.padding_bytes;
  }
  if (to) {
    current_[*to] += block.bytes - block.padding_bytes;
    current_[MemoryCategory::kPadding] += block.padding_bytes;
  }
  AddEvent(block, from, to);
}

void MemoryAccount::AddEvent(const MemoryBlock& block, Category from,
                             Category to) {
  if (event_capacity_ == 0) return;
  const MemoryEvent event{collectives::NowNs(),
                          reinterpret_cast<uintptr_t>(&block + 1),
                          block.bytes,
                          block.padding_bytes,
                          from,
                          to};
  const size_t at = num_events_++ % event_capacity_;
  if (at < events_.size()) {
    events_[at] = event;
  } else {
    events_.push_back(event);
  }
}

void MemoryAccount::UpdatePeak() {
  for (MemoryCategory c : kMemoryCategories) {
    peak_.of_category[c] = std::max(peak_.of_category[c], current_[c]);
  }
  const int64_t total = current_.Total();
  if (total <= peak_.bytes) return;
  peak_.bytes = total;
  peak_.split = current_;
}

void MemoryAccount::Mark(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto mark =
      std::find_if(marks_.begin(), marks_.end(),
                   [name](const MemoryMark& m) { return m.name == name; });
  if (mark != marks_.end()) {
    mark->split = current_;
  } else {
    marks_.push_back({std::string(name), current_});
  }
}

MemorySplit MemoryAccount::Current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

int64_t MemoryAccount::LiveBytes() const {
  const std::lock_guard lock(mutex_);
  return live_bytes_;
}

MemoryPeak MemoryAccount::Peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void MemoryAccount::ResetPeak() {
  const std::lock_guard lock(mutex_);
  peak_ = {current_.Total(), current_, current_};
}

std::vector<MemoryMark> MemoryAccount::Marks() const {
  const std::lock_guard lock(mutex_);
  return marks_;
}

std::vector<MemoryEvent> MemoryAccount::Events() const {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryEvent> events = events_;
  if (num_events_ > events.size()) {
    std::rotate(
        events.begin(),
        events.begin() + static_cast<ptrdiff_t>(num_events_ % event_capacity_),
        events.end());
  }
  return events;
}

uint64_t MemoryAccount::lost_events() const {
  const std::lock_guard lock(mutex_);
  return num_events_ - events_.size();
}

}  // namespace trainsys
