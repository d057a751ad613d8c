// Where tensors lie in one flat buffer. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trainsys {

// Every tensor starts on this many bytes, as libtorch's allocator starts it:
// so a kernel sees the same alignment, and gives the same bits, whether the
// tensor stands alone, in a bucket of any size or in a flat buffer.
inline constexpr int64_t kTensorAlignmentBytes = 64;

struct FlatLayout {
  std::vector<int64_t> offsets;  // elements from the start, one a tensor
  int64_t elems = 0;             // of the whole buffer, padding included
};

// `elems`: the length of each tensor; zero is allowed and takes no room.
FlatLayout LayOut(std::span<const int64_t> elems, int64_t elem_bytes);

// `elems` rounded up to whole alignments.
int64_t AlignedElems(int64_t elems, int64_t elem_bytes);

}  // namespace trainsys
