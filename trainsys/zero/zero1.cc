#include "trainsys/zero/zero1.h"

#include <utility>

#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {

ZeRO1::ZeRO1(std::vector<at::Tensor> parameters,
             collectives::Communicator& comm, const AdamWOptions& options)
    : local_(std::move(parameters), options, comm.ranks(), comm.rank()),
      comm_(comm.Duplicate("zero1")) {}

void ZeRO1::Step() {
  StepShard();
  GatherParameters();
}

void ZeRO1::GatherParameters() {
  const collectives::Buffer all = BufferOf(local_.parameters().flat());
  const Shard& own = local_.shard();
  auto* begin = static_cast<char*>(all.data) +
                own.begin * local_.parameters().elem_bytes();
  comm_->AllGather({begin, all.dtype, own.elems}, all, Counts(shards()),
                   "zero1 params");
  for (const at::Tensor& p : local_.parameters().parameters()) MarkWritten(p);
}

}  // namespace trainsys
