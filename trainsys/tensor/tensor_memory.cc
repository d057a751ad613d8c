#include "trainsys/tensor/tensor_memory.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <cstring>
#include <string>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::DType;
using collectives::InvalidArgument;

DType DTypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return DType::kF64;
    case at::kFloat:
      return DType::kF32;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kHalf:
      return DType::kF16;
    case at::kLong:
      return DType::kI64;
    case at::kInt:
      return DType::kI32;
    case at::kByte:
    case at::kBool:
      return DType::kU8;
    default:
      throw InvalidArgument(std::string("a tensor of ") +
                            c10::toString(tensor.scalar_type()) +
                            ", expected f64, f32, bf16, f16, i64, i32, u8 or "
                            "bool");
  }
}

// `offset`: in elements of the options' dtype.
at::Tensor Alias(const at::Storage& storage, int64_t offset,
                 const at::TensorOptions& options, at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  const int64_t elems = c10::multiply_integers(sizes);
  if (elems == 0) offset = 0;  // nothing lies anywhere
  // set_ would grow the storage instead.
  const int64_t end =
      (offset + elems) * static_cast<int64_t>(options.dtype().itemsize());
  if (offset < 0 || end > static_cast<int64_t>(storage.nbytes())) {
    throw InvalidArgument("a tensor over bytes up to " + std::to_string(end) +
                          " of a storage of " +
                          std::to_string(storage.nbytes()) +
                          ", expected within it");
  }
  at::Tensor alias = at::empty({0}, options);
  alias.set_(storage, offset, sizes, strides);
  return alias;
}

constexpr uint64_t kFnvOffset = 14695981039346656037ULL;
constexpr uint64_t kFnvPrime = 1099511628211ULL;

uint64_t Mix(uint64_t hash, const char* bytes, size_t size) {
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof(word), size - at));
    hash = (hash ^ word) * kFnvPrime;
    hash ^= hash >> 32;  // the product alone never moves high bits down
  }
  return hash;
}

}  // namespace

collectives::Buffer BufferOf(const at::Tensor& tensor) {
  if (!tensor.is_contiguous()) {
    throw InvalidArgument(
        "a tensor with strides, expected a contiguous one: call contiguous()");
  }
  const DType dtype = DTypeOf(tensor);
  return {tensor.numel() == 0 ? nullptr : tensor.data_ptr(), dtype,
          tensor.numel(),
          tensor.is_cuda() ? static_cast<int>(tensor.get_device())
                           : collectives::kHostMemory};
}

std::vector<int64_t> BytesOfEach(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> bytes;
  for (const at::Tensor& t : tensors) {
    bytes.push_back(static_cast<int64_t>(t.nbytes()));
  }
  return bytes;
}

at::Tensor AliasOf(const at::Tensor& flat, int64_t offset,
                   at::IntArrayRef sizes) {
  return Alias(flat.storage(), flat.storage_offset() + offset, flat.options(),
               sizes);
}

at::Tensor AliasOfBytes(const at::Tensor& bytes, int64_t begin,
                        at::ScalarType dtype, at::IntArrayRef sizes) {
  const auto elem_bytes = static_cast<int64_t>(c10::elementSize(dtype));
  return Alias(bytes.storage(), (bytes.storage_offset() + begin) / elem_bytes,
               bytes.options().dtype(dtype), sizes);
}

void MarkWritten(const at::Tensor& tensor) {
  tensor.unsafeGetTensorImpl()->bump_version();
}

uint64_t HashOf(const std::vector<at::Tensor>& tensors) {
  uint64_t hash = kFnvOffset;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor values = tensor.detach().cpu().contiguous();
    if (values.numel() == 0) continue;
    hash = Mix(hash, static_cast<const char*>(values.data_ptr()),
               static_cast<size_t>(values.numel()) * values.element_size());
  }
  return hash;
}

}  // namespace trainsys
