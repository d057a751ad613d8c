#include "trainsys/ddp/gradient_shard.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "collectives/errors.h"
#include "trainsys/autograd/gradient_like.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/flat_layout.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {

GradientShard::GradientShard(const std::vector<at::Tensor>& parameters,
                             const std::vector<size_t>& order,
                             const BucketLimits& limits,
                             ShardedParameters sharded)
    : parameters_(parameters),
      sharded_(std::move(sharded)),
      plan_(PlanBuckets(SizesOf(parameters), order, limits)),
      places_(parameters.size()) {
  const std::vector<ParameterSize> sizes = SizesOf(parameters);
  for (size_t b = 0; b < plan_.size(); ++b) {
    plan_[b] = InOrderOfShards(plan_[b], sizes, sharded_);
    for (size_t i = 0; i < plan_[b].parameters.size(); ++i) MakePlace(b, i);
    shards_.push_back(
        CutBucket(plan_[b], static_cast<int64_t>(c10::elementSize(DTypeOf(b))),
                  sharded_));
  }
  MakeMemory();
}

void GradientShard::MakePlace(size_t bucket, size_t position) {
  const size_t p = plan_[bucket].parameters[position];
  Place& place = places_[p];
  place.bucket = bucket;
  place.in_bucket = plan_[bucket].layout.offsets[position];
  place.in_shard = sharded_.offsets[p] - sharded_.own().begin;
  place.elems = parameters_[p].numel();
  place.dtype = parameters_[p].scalar_type();
  place.is_wholly_own =
      IsWhollyOwn(p, static_cast<int64_t>(parameters_[p].nbytes()), sharded_);
}

void GradientShard::MakeMemory() {
  const at::TensorOptions bytes =
      parameters_[0].options().dtype(at::kByte).requires_grad(false);
  int64_t largest = 0;
  for (size_t b = 0; b < plan_.size(); ++b) {
    largest = std::max(largest,
                       plan_[b].layout.elems *
                           static_cast<int64_t>(c10::elementSize(DTypeOf(b))));
  }
  for (at::Tensor& buffer : buffers_) {
    buffer = at::zeros({largest}, bytes);
    Attribute(buffer, MemoryCategory::kCommunication);
  }
  const Shard& own = sharded_.own();
  shard_ = at::zeros({own.bytes}, bytes);
  int64_t padding = own.bytes;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const int64_t begin = sharded_.offsets[p];
    const int64_t end = begin + static_cast<int64_t>(parameters_[p].nbytes());
    padding -= std::max(int64_t{0},
                        std::min(end, own.end()) - std::max(begin, own.begin));
  }
  Attribute(shard_, MemoryCategory::kGradient, padding);
}

at::ScalarType GradientShard::DTypeOf(size_t bucket) const {
  return parameters_[plan_[bucket].parameters[0]].scalar_type();
}

at::Tensor GradientShard::Flat(size_t bucket) const {
  return AliasOfBytes(buffers_[bucket % buffers_.size()], 0, DTypeOf(bucket),
                      {plan_[bucket].layout.elems});
}

bool GradientShard::Fits(size_t parameter) const {
  return parameters_[parameter].numel() == places_[parameter].elems &&
         parameters_[parameter].scalar_type() == places_[parameter].dtype;
}

void GradientShard::Open() {
  for (size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (!std::exchange(place.is_shown, false)) continue;
    const at::Tensor& grad = parameters_[i].grad();
    if (!grad.defined() || !IsIn(place, grad) ||
        grad._version() != place.version) {
      is_spoiled_ = true;
    }
    parameters_[i].mutable_grad().reset();  // backward adds to no average
  }
  if (!is_spoiled_) return;
  throw collectives::Error(
      "BeginForward: a gradient was changed, replaced, zeroed or dropped while "
      "averages add up; expected ZeroGrad of BucketedDDP or of the optimizer, "
      "which see all of them");
}

bool GradientShard::IsIn(const Place& place, const at::Tensor& grad) const {
  return grad.has_storage() &&
         grad.data_ptr() ==
             static_cast<char*>(shard_.data_ptr()) + place.in_shard;
}

bool GradientShard::Bring(size_t parameter) {
  const at::Tensor grad = parameters_[parameter].grad();
  if (!grad.defined()) return false;
  RefuseUnlike(grad, parameters_[parameter]);
  Place& place = places_[parameter];
  if (place.bucket == filling_) {
    Fill(parameter, grad);
  } else {
    place.held = grad;
  }
  parameters_[parameter].mutable_grad().reset();
  return true;
}

// Whatever the bucket before left in the buffer is overwritten, padding too.
void GradientShard::Fill(size_t parameter, const at::Tensor& gradient) {
  Place& place = places_[parameter];
  place.is_brought = true;
  if (place.elems == 0) return;
  const auto elem_bytes = static_cast<int64_t>(c10::elementSize(place.dtype));
  const int64_t elems = AlignedElems(place.elems, elem_bytes);
  if (gradient.defined() && gradient.is_cpu() && gradient.is_contiguous()) {
    // A tenth of what copy_ takes for few elements.
    const at::Tensor& buffer = buffers_[place.bucket % buffers_.size()];
    auto* const to =
        static_cast<char*>(buffer.data_ptr()) + place.in_bucket * elem_bytes;
    const size_t bytes = gradient.nbytes();
    std::memcpy(to, gradient.data_ptr(), bytes);
    std::memset(to + bytes, 0, static_cast<size_t>(elems * elem_bytes) - bytes);
    return;
  }
  const at::Tensor padded =
      AliasOf(Flat(place.bucket), place.in_bucket, {elems});
  padded.zero_();
  const at::Tensor to = AliasOf(padded, 0, parameters_[parameter].sizes());
  if (gradient.defined()) {
    to.copy_(gradient.detach());
  } else {
    to.fill_(-0.0);
  }
}

FullBucket GradientShard::Close(size_t bucket) {
  for (size_t p : plan_[bucket].parameters) {
    Place& place = places_[p];
    if (!place.is_brought) Fill(p, place.held);
    place.held.reset();
    place.is_brought = false;
  }
  filling_ = (bucket + 1) % plan_.size();
  FullBucket full;
  full.flat = Flat(bucket);
  full.label = "bucket " + std::to_string(bucket);
  full.counts = shards_[bucket].counts;
  return full;
}

void GradientShard::Keep(size_t bucket, double divisor) {
  const at::Tensor flat = Flat(bucket);
  for (const BucketShards::Run& run : shards_[bucket].own) {
    const at::Tensor from = AliasOf(flat, run.in_bucket, {run.elems});
    if (divisor != 1) from.div_(divisor);
    const at::Tensor to =
        AliasOfBytes(shard_, run.in_shard * flat.element_size(),
                     flat.scalar_type(), {run.elems});
    if (is_empty_) {
      to.copy_(from);
    } else {
      to.add_(from);
    }
  }
}

void GradientShard::Show(size_t parameter, bool has_gradient) {
  is_empty_ = false;
  Place& place = places_[parameter];
  place.has_result = place.has_result || has_gradient;
  const at::Tensor& p = parameters_[parameter];
  if (!place.has_result || !place.is_wholly_own) {
    p.mutable_grad().reset();
  } else if (place.elems == 0) {
    p.mutable_grad() = at::zeros_like(p);  // it has no place
  } else {
    p.mutable_grad() =
        AliasOfBytes(shard_, place.in_shard, place.dtype, p.sizes());
    place.version = p.grad()._version();
    place.is_shown = true;
  }
}

void GradientShard::Divide(size_t bucket, double divisor) {
  const at::ScalarType dtype = DTypeOf(bucket);
  for (const BucketShards::Run& run : shards_[bucket].own) {
    const auto elem_bytes = static_cast<int64_t>(c10::elementSize(dtype));
    AliasOfBytes(shard_, run.in_shard * elem_bytes, dtype, {run.elems})
        .div_(divisor);
  }
}

void GradientShard::Drop() {
  is_empty_ = true;
  is_spoiled_ = false;
  filling_ = 0;
  for (Place& place : places_) {
    place.has_result = place.is_shown = place.is_brought = false;
    place.held.reset();
  }
}

at::Tensor GradientShard::Result(size_t parameter, int64_t begin,
                                 int64_t elems) const {
  const at::Tensor& grad = parameters_[parameter].grad();
  if (grad.defined()) {
    RefuseUnlike(grad, parameters_[parameter]);
    return AliasOf(grad.contiguous(), begin, {elems});
  }
  if (!places_[parameter].has_result) return {};
  if (places_[parameter].is_shown) return {};  // and dropped since
  return Reduced(parameter, begin, elems);
}

at::Tensor GradientShard::Reduced(size_t parameter, int64_t begin,
                                  int64_t elems) const {
  const Place& place = places_[parameter];
  const auto elem_bytes = static_cast<int64_t>(c10::elementSize(place.dtype));
  return AliasOfBytes(shard_, place.in_shard + begin * elem_bytes, place.dtype,
                      {elems});
}

int64_t GradientShard::Bytes() const { return shard_.numel(); }

}  // namespace trainsys
