// How much memory this machine has to give.
#pragma once

#include <cstdint>

namespace trainsys {

// Bytes that can be allocated now without swapping: the kernel's estimate, or
// the control group's limit where that is lower. The largest int64_t where
// neither is known.
int64_t AvailableMemoryBytes();

}  // namespace trainsys
