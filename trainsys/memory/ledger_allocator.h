// libtorch's CPU allocator with a MemoryBlock before each allocation.
#pragma once

#include <c10/core/StorageImpl.h>

#include <memory>

#include "trainsys/memory/account.h"

namespace trainsys {

// Puts it in front of libtorch's, once. Threads: before others use tensors.
void InstallLedgerAllocator();

// The block of a storage's memory; null where the memory is another's.
MemoryBlock* BlockOf(const c10::StorageImpl& storage);

// What the calling thread's allocations are booked with.
MemoryContext& OfThisThread();

// The account of allocations outside every LedgerScope.
const std::shared_ptr<MemoryAccount>& ProcessAccount();

}  // namespace trainsys
