// What a ledger books, one at a time. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "trainsys/memory/category.h"

namespace trainsys {

// An allocation came (no `from`), went (no `to`) or changed its category.
struct MemoryEvent {
  int64_t time_ns = 0;    // collectives::NowNs()
  uintptr_t address = 0;  // of the data
  int64_t bytes = 0;      // of the data, padding included
  int64_t padding_bytes = 0;
  std::optional<MemoryCategory> from, to;
};

}  // namespace trainsys
