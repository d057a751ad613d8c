// What ZeRO-2 holds of gradients: a shard, two buckets, and what comes before
// its bucket's turn.
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "tests/zero/ways.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/memory/ledger.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::RunRanksHere;

constexpr int64_t kWidth = 64;
constexpr int64_t kLayerBytes = 4 * kWidth * kWidth;  // a gradient
constexpr int64_t kLayers = 8;
// Activations, and what else is small.
constexpr int64_t kSlack = kLayerBytes / 2;

// In which order layers are registered; the first one registered is the last
// one that the first plan of buckets expects.
enum class Registered { kAsUsed, kBackwards };

// Layers tanh(x w).
Tensors AddChain(torch::nn::Module& module, Registered registered) {
  Tensors used(kLayers);
  for (int64_t i = 0; i < kLayers; ++i) {
    const auto layer = static_cast<size_t>(
        registered == Registered::kAsUsed ? i : kLayers - 1 - i);
    used[layer] = module.register_parameter(
        "w" + std::to_string(layer), Random(layer, {kWidth, kWidth}) * 0.1);
  }
  return used;
}

at::Tensor ChainLoss(const Tensors& layers, int rank) {
  at::Tensor h = Random(100 + static_cast<uint64_t>(rank), {1, kWidth});
  for (const at::Tensor& w : layers) h = at::matmul(h, w).tanh();
  return h.square().sum();
}

int64_t LargestBucketBytes(const BucketedDDP& ddp) {
  int64_t largest = 0;
  for (const Bucket& bucket : ddp.buckets()) {
    largest = std::max(largest, bucket.layout.elems * 4);
  }
  return largest;
}

// One rank's ZeRO-2, and its ledger.
struct Rank {
  Rank(Communicator& comm, const MemoryLedger& ledger, Registered registered,
       Partition partition = Partition::kFlat)
      : comm(comm),
        ledger(ledger),
        layers(AddChain(module, registered)),
        ddp(module, comm,
            {.bucket_bytes = 2 * kLayerBytes,
             .first_bucket_bytes = 2 * kLayerBytes,
             .sharding = GradientSharding::kStored,
             .partition = partition}) {}

  void Backward() {
    ddp.BeginForward();
    ChainLoss(layers, comm.rank()).backward();
    ddp.FinishGradientSync();
  }
  int64_t ShardBytes() const {
    return ddp.shard_plan().shards[static_cast<size_t>(comm.rank())].bytes;
  }

  Communicator& comm;
  const MemoryLedger& ledger;
  torch::nn::Module module;
  Tensors layers;
  BucketedDDP ddp;
};

void OnRanks(int ranks,
             const std::function<void(Communicator&, MemoryLedger&)>& fn) {
  std::vector<MemoryLedger> ledgers(static_cast<size_t>(ranks));
  RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
    MemoryLedger& ledger = ledgers[static_cast<size_t>(comm.rank())];
    const LedgerScope mine(ledger);
    fn(comm, ledger);
  });
}

// Nothing but parameters, the shard and two buckets.
void ExpectShardOnly(const Rank& rank) {
  const MemorySplit split = rank.ledger.Current();
  EXPECT_EQ(split[MemoryCategory::kGradient], rank.ShardBytes());
  EXPECT_EQ(split[MemoryCategory::kCommunication],
            2 * LargestBucketBytes(rank.ddp));
  EXPECT_EQ(split[MemoryCategory::kParameter], kLayers * kLayerBytes);
  EXPECT_EQ(split.Total(), kLayers * kLayerBytes + rank.ShardBytes() +
                               2 * LargestBucketBytes(rank.ddp));
}

class GradientResidencyTest
    : public testing::TestWithParam<std::tuple<int, Partition>> {};

INSTANTIATE_TEST_SUITE_P(
    Cuts, GradientResidencyTest,
    testing::Combine(testing::Values(1, 2, 4),
                     testing::Values(Partition::kFlat, Partition::kByTensor,
                                     Partition::kBalanced)),
    [](const auto& info) {
      return "ranks" + std::to_string(std::get<0>(info.param)) + "_" +
             Name(std::get<1>(info.param));
    });

// The second of two micro-steps adds to the shard. Beyond what stays there is
// one gradient, from the moment it comes until it is in its bucket.
TEST_P(GradientResidencyTest, ABackwardHoldsAShardTwoBucketsAndOneGradient) {
  const auto [ranks, partition] = GetParam();
  OnRanks(ranks,
          [&, cut = partition](Communicator& comm, MemoryLedger& ledger) {
            Rank rank(comm, ledger, Registered::kAsUsed, cut);
            EXPECT_EQ(rank.ShardBytes(), kLayers * kLayerBytes / comm.ranks());
            for (int step = 0; step < 3; ++step) {
              rank.ddp.ZeroGrad();
              for (int micro_step = 0; micro_step < 2; ++micro_step) {
                ExpectShardOnly(rank);
                const int64_t before = ledger.Current().Total();
                ledger.ResetPeak();
                rank.Backward();
                EXPECT_LT(ledger.Peak().bytes, before + kLayerBytes + kSlack);
              }
              ExpectShardOnly(rank);
            }
          });
}

// Gradients come in the order of registration, those of the first bucket last:
// the two last ones go to their bucket at once, the others wait for it.
TEST(GradientResidencyTest, WhatComesOutOfOrderIsHeldUntilThePlanKnows) {
  OnRanks(2, [](Communicator& comm, MemoryLedger& ledger) {
    Rank rank(comm, ledger, Registered::kBackwards);
    const int64_t before = ledger.Current().Total();
    for (int step = 0; step < 3; ++step) {
      rank.ddp.ZeroGrad();
      ledger.ResetPeak();
      rank.Backward();
      const int64_t most_at_once = step == 0 ? kLayers - 2 + 1 : 1;
      EXPECT_GE(ledger.Peak().bytes, before + most_at_once * kLayerBytes);
      EXPECT_LT(ledger.Peak().bytes,
                before + most_at_once * kLayerBytes + kSlack);
      ExpectShardOnly(rank);
    }
  });
}

}  // namespace
}  // namespace trainsys
