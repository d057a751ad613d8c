// Tensors as plain memory: for collectives, flat buffers and hashes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "collectives/buffer.h"

namespace trainsys {

// The whole of a contiguous tensor, to be moved by a collective.
// Lifetime: the tensor's storage.
// Errors: InvalidArgument if it is not contiguous or of a dtype that no
// collective moves.
collectives::Buffer BufferOf(const at::Tensor& tensor);

// Bytes of each one's elements.
std::vector<int64_t> BytesOfEach(const std::vector<at::Tensor>& tensors);

// A tensor of `sizes` over `flat`'s memory from element `offset` on. Unlike
// narrow() it is no autograd view, so it may be detached in place and stand
// as a gradient or as a parameter's data.
// Errors: InvalidArgument if the memory ends before.
at::Tensor AliasOf(const at::Tensor& flat, int64_t offset,
                   at::IntArrayRef sizes);

// The same over bytes. `bytes`: a tensor of u8; `begin`: a multiple of the
// dtype's size.
at::Tensor AliasOfBytes(const at::Tensor& bytes, int64_t begin,
                        at::ScalarType dtype, at::IntArrayRef sizes);

// Tells autograd that `tensor` was written behind its back: a graph that has
// saved it then refuses to run backward, as after any in-place operation.
void MarkWritten(const at::Tensor& tensor);

// 64-bit hash of the values' bytes, in order (FNV-1a over 8-byte words).
// Equal bits give equal hashes; dtype and shape do not count.
uint64_t HashOf(const std::vector<at::Tensor>& tensors);

}  // namespace trainsys
