// Ranks that train exact_loss.h's parameters, and what they must end up with.
#pragma once

#include <ATen/ops/ones.h>

#include <chrono>
#include <functional>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/ddp/exact_loss.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/bucketed_ddp.h"

namespace trainsys {

inline constexpr std::chrono::minutes kTimeout{1};

// Of reference A, the ranks' losses being the sums over these micro-steps.
inline Tensors Expected(int ranks, const std::vector<int>& micro_steps) {
  torch::nn::Module module;
  const Tensors one = AddExact(module);
  return MicroStepGradients(one, ranks, [&](int rank) {
    at::Tensor loss = ExactLoss(one, rank, micro_steps[0]);
    for (size_t m = 1; m < micro_steps.size(); ++m) {
      loss = loss + ExactLoss(one, rank, micro_steps[m]);
    }
    return loss;
  });
}

// A rank with a wrapped module of its own.
struct ExactRank {
  explicit ExactRank(collectives::Communicator& comm,
                     BucketedDDPOptions options = {.bucket_bytes = 1})
      : comm(comm),
        parameters(AddExact(module)),
        buffer(module.register_buffer("buffer", at::ones({2}))),
        ddp(module, comm, options) {}

  at::Tensor Loss(int micro_step = 0) const {
    return ExactLoss(parameters, comm.rank(), micro_step);
  }
  size_t NumRecords() const { return comm.recorder().Records().size(); }

  collectives::Communicator& comm;
  torch::nn::Module module;
  Tensors parameters;
  at::Tensor buffer;
  BucketedDDP ddp;
};

inline void OnRanks(int ranks, const std::function<void(ExactRank&)>& fn) {
  collectives::RunRanksHere({.ranks = ranks, .timeout = kTimeout},
                            [&](collectives::Communicator& comm) {
                              ExactRank rank(comm);
                              fn(rank);
                            });
}

}  // namespace trainsys
