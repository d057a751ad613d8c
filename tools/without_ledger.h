// To time things beside what they take without the memory ledger.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdint>

namespace trainsys {

// libtorch's own allocator while it lives.
// Call: once there was a ledger. Threads: while no other uses tensors.
class WithoutLedger {
 public:
  WithoutLedger() : ours_(c10::GetCPUAllocator()) {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), kPriority);
  }
  ~WithoutLedger() { c10::SetCPUAllocator(ours_, kPriority); }
  WithoutLedger(const WithoutLedger&) = delete;
  WithoutLedger& operator=(const WithoutLedger&) = delete;

 private:
  static constexpr uint8_t kPriority = 1;  // the ledger's
  c10::Allocator* const ours_;
};

}  // namespace trainsys
