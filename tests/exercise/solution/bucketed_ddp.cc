#include "tests/exercise/solution/bucketed_ddp.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <string>

#include "collectives/errors.h"
#include "trainsys/tensor/tensor_memory.h"

namespace exercise {

using collectives::ReduceOp;
using trainsys::BufferOf;

BucketedDDP::BucketedDDP(torch::nn::Module& module,
                         collectives::Communicator& comm, int64_t bucket_bytes)
    : parameters_(module.parameters()), comm_(comm.Duplicate("my ddp")) {
  for (const at::Tensor& p : parameters_) {
    comm_->Broadcast(BufferOf(p), /*root=*/0, "first parameters");
  }
  FillBuckets(bucket_bytes);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    hooks_.emplace_back(parameters_[i], [this, i] { OnGradientReady(i); });
  }
}

// From the last parameter to the first: backward goes that way.
void BucketedDDP::FillBuckets(int64_t bucket_bytes) {
  bucket_of_.resize(parameters_.size());
  int64_t bytes = 0;
  for (size_t i = parameters_.size(); i-- > 0;) {
    const auto more = static_cast<int64_t>(parameters_[i].nbytes());
    if (buckets_.empty() || bytes + more > bucket_bytes) {
      buckets_.emplace_back();
      bytes = 0;
    }
    bytes += more;
    buckets_.back().parameters.push_back(i);
    bucket_of_[i] = buckets_.size() - 1;
  }
}

void BucketedDDP::BeginForward() {
  if (!c10::GradMode::is_enabled()) return;  // an evaluation
  is_syncing_ = !HasNoSync();
  num_posted_ = 0;
  for (Bucket& bucket : buckets_) bucket.num_missing = bucket.parameters.size();
}

void BucketedDDP::OnGradientReady(size_t parameter) {
  if (!is_syncing_) return;
  --buckets_[bucket_of_[parameter]].num_missing;
  while (num_posted_ < buckets_.size() &&
         buckets_[num_posted_].num_missing == 0) {
    Post(num_posted_++);
  }
}

void BucketedDDP::Post(size_t number) {
  Bucket& bucket = buckets_[number];
  std::vector<at::Tensor> gradients;
  for (size_t i : bucket.parameters) {
    gradients.push_back(parameters_[i].grad().flatten());
  }
  bucket.flat = at::cat(gradients);
  bucket.work = comm_->StartAllReduce(BufferOf(bucket.flat), ReduceOp::kAverage,
                                      "bucket " + std::to_string(number));
}

void BucketedDDP::FinishGradientSync() {
  if (!is_syncing_) throw collectives::Error(trainsys::kNothingToFinish);
  is_syncing_ = false;
  if (num_posted_ < buckets_.size()) {
    throw collectives::Error("a parameter got no gradient in this backward");
  }
  for (Bucket& bucket : buckets_) {
    bucket.work.Wait();
    TakeBack(bucket);
  }
}

void BucketedDDP::TakeBack(Bucket& bucket) {
  int64_t offset = 0;
  for (size_t i : bucket.parameters) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    const int64_t elems = gradient.numel();
    gradient.copy_(bucket.flat.narrow(0, offset, elems).view_as(gradient));
    offset += elems;
  }
  bucket.flat.reset();
}

}  // namespace exercise
