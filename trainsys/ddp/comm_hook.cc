#include "trainsys/ddp/comm_hook.h"

#include <ATen/ops/empty.h>

#include <numeric>
#include <utility>
#include <vector>

#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::ReduceOp;
using collectives::Work;

bool IsWiderThan16Bits(const at::Tensor& flat) {
  return flat.element_size() > 2;
}

// What this rank gets the reduction of. `data`: of the bucket's shape.
at::Tensor OwnPart(const at::Tensor& data, const FullBucket& bucket,
                   const Communicator& comm) {
  if (bucket.counts.empty()) return data;
  const auto own = bucket.counts.begin() + comm.rank();
  const int64_t begin = std::accumulate(bucket.counts.begin(), own, int64_t{0});
  return AliasOf(data, begin, {*own});
}

// In place.
Work StartReduction(const at::Tensor& data, ReduceOp op,
                    const FullBucket& bucket, Communicator& comm) {
  const collectives::Buffer all = BufferOf(data);
  if (bucket.counts.empty()) return comm.StartAllReduce(all, op, bucket.label);
  return comm.StartReduceScatter(all, BufferOf(OwnPart(data, bucket, comm)),
                                 bucket.counts, op, bucket.label);
}

// There and back in `dtype`.
CommHook CompressTo(at::ScalarType dtype) {
  return [dtype](const FullBucket& bucket, Communicator& comm) {
    if (!IsWiderThan16Bits(bucket.flat)) return NoCompression()(bucket, comm);
    const CategoryScope buffer(MemoryCategory::kCommunication);
    const at::Tensor compressed = bucket.flat.to(dtype);
    // A sum may be too large for 16 bits where the mean is not.
    const double scale = bucket.op == ReduceOp::kSum ? comm.ranks() : 1;
    Work work = StartReduction(compressed, ReduceOp::kAverage, bucket, comm);
    work.OnDone([from = OwnPart(compressed, bucket, comm),
                 to = OwnPart(bucket.flat, bucket, comm), scale] {
      to.copy_(from);
      if (scale != 1) to.mul_(scale);
    });
    return work;
  };
}

// Folds ranks 0, 1, ... in that order.
void FoldInto(const at::Tensor& to, const std::vector<at::Tensor>& of_ranks,
              ReduceOp op) {
  to.copy_(of_ranks[0]);
  for (size_t r = 1; r < of_ranks.size(); ++r) to.add_(of_ranks[r]);
  if (op == ReduceOp::kAverage) to.div_(static_cast<int64_t>(of_ranks.size()));
}

}  // namespace

CommHook NoCompression() {
  return [](const FullBucket& bucket, Communicator& comm) {
    return StartReduction(bucket.flat, bucket.op, bucket, comm);
  };
}

CommHook CompressToBF16() { return CompressTo(at::kBFloat16); }

CommHook CompressToF16() { return CompressTo(at::kHalf); }

CommHook GatherBF16() {
  return [](const FullBucket& bucket, Communicator& comm) {
    if (!IsWiderThan16Bits(bucket.flat)) return NoCompression()(bucket, comm);
    const int64_t elems = bucket.flat.numel();
    const CategoryScope buffer(MemoryCategory::kCommunication);
    const at::Tensor gathered = at::empty(
        {comm.ranks(), elems}, bucket.flat.options().dtype(at::kBFloat16));
    const at::Tensor mine = gathered[comm.rank()];
    mine.copy_(bucket.flat);
    const std::vector<int64_t> counts(static_cast<size_t>(comm.ranks()), elems);
    Work work = comm.StartAllGather(BufferOf(mine), BufferOf(gathered), counts,
                                    bucket.label);
    std::vector<at::Tensor> of_ranks;
    for (int64_t r = 0; r < comm.ranks(); ++r) {
      of_ranks.push_back(OwnPart(gathered[r], bucket, comm));
    }
    work.OnDone([of_ranks, to = OwnPart(bucket.flat, bucket, comm),
                 op = bucket.op] { FoldInto(to, of_ranks, op); });
    return work;
  };
}

}  // namespace trainsys
