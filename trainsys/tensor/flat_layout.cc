#include "trainsys/tensor/flat_layout.h"

namespace trainsys {

int64_t AlignedElems(int64_t elems, int64_t elem_bytes) {
  const int64_t unit = kTensorAlignmentBytes / elem_bytes;
  return (elems + unit - 1) / unit * unit;
}

FlatLayout LayOut(std::span<const int64_t> elems, int64_t elem_bytes) {
  FlatLayout layout;
  for (int64_t length : elems) {
    layout.offsets.push_back(layout.elems);
    layout.elems += AlignedElems(length, elem_bytes);
  }
  return layout;
}

}  // namespace trainsys
