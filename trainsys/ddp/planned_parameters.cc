#include "trainsys/ddp/planned_parameters.h"

#include <utility>

#include "collectives/errors.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {

PlannedParameters::PlannedParameters(std::vector<at::Tensor> parameters,
                                     int ranks, Partition partition)
    : all_(std::move(parameters)),
      plan_(PlanShards(BytesOfEach(all_), ranks, partition)),
      trained_of_(all_.size()) {
  for (size_t p = 0; p < all_.size(); ++p) {
    index_[all_[p].unsafeGetTensorImpl()] = p;
  }
}

std::optional<size_t> PlannedParameters::Find(
    const at::Tensor& parameter) const {
  const auto found = index_.find(parameter.unsafeGetTensorImpl());
  if (found == index_.end()) return std::nullopt;
  const auto bytes = static_cast<int64_t>(parameter.nbytes());
  if (bytes != plan_.tensor_bytes[found->second]) return std::nullopt;
  return found->second;
}

void PlannedParameters::RefuseUnplanned(const NamedTensors& trained) const {
  for (size_t p = 0; p < trained.tensors.size(); ++p) {
    if (Find(trained.tensors[p])) continue;
    throw collectives::InvalidArgument(
        "parameter '" + trained.names[p] +
        "' is in no shard: it was frozen, or of another size, when BucketedDDP "
        "was made; make a new one");
  }
}

void PlannedParameters::SetTrained(const std::vector<at::Tensor>& trained) {
  planned_of_.clear();
  trained_of_.assign(all_.size(), std::nullopt);
  for (size_t p = 0; p < trained.size(); ++p) {
    planned_of_.push_back(Find(trained[p]));
    if (planned_of_[p]) trained_of_[*planned_of_[p]] = p;
  }
}

ShardedParameters PlannedParameters::Sharded(int rank) const {
  ShardedParameters sharded;
  sharded.shards = plan_.shards;
  sharded.rank = rank;
  for (const std::optional<size_t>& planned : planned_of_) {
    sharded.offsets.push_back(plan_.offsets[planned.value()]);
  }
  return sharded;
}

}  // namespace trainsys
