// How much memory this machine has to give.
#pragma once

#include <cstdint>

namespace trainsys {

// Bytes that can be allocated now without swapping, as the kernel estimates
// it; a container's own limit is not seen. The largest int64_t where unknown.
int64_t AvailableMemoryBytes();

}  // namespace trainsys
