// Collectives that are long under way, or longer on some ranks: no buffer is
// used again too early, nobody sees old parameters, and no bit changes.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/record/clock.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "tests/zero/layers_rank.h"
#include "tests/zero/slow_communicator.h"
#include "trainsys/ddp/comm_hook.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::NowNs;
using collectives::PhaseRecord;
using collectives::RankFunction;
using collectives::RunRanksHere;
using torch::nn::Module;

constexpr int kRanks = 3;
constexpr size_t kLags[] = {2, 0, 5};  // of each rank

void OnRanks(const RankFunction& fn) {
  RunRanksHere({.ranks = kRanks, .timeout = std::chrono::minutes(1)}, fn);
}

// Each parameter is a bucket: two buffers take turns for six of them.
BucketedDDPOptions OneEach() {
  return {.bucket_bytes = 1, .first_bucket_bytes = 1};
}

Tensors TrainSlowly(Communicator& comm, const Way& way, int64_t steps,
                    const BucketedDDPOptions& options) {
  SlowCommunicator slow(comm, kLags[comm.rank()]);
  LayersRank rank(slow, way, options);
  for (int64_t step = 0; step < steps; ++step) rank.Step(step);
  return Snapshot(rank.parameters);
}

class SlowRanksTest : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, SlowRanksTest, testing::ValuesIn(ShardedWays()),
                         [](const auto& info) { return Name(info.param); });

TEST_P(SlowRanksTest, EndInTheBitsOfOneRank) {
  const Tensors expected = LayersTrained(kRanks, 8);
  for (const BucketedDDPOptions& options : {OneEach(), SmallBuckets()}) {
    OnRanks([&](Communicator& comm) {
      EXPECT_TRUE(
          EqualBits(TrainSlowly(comm, GetParam(), 8, options), expected));
    });
  }
}

TEST(SlowRanksTest, TwoBuffersServeManyBucketsInTurn) {
  constexpr int64_t kSteps = 200;
  const Tensors expected = LayersTrained(kRanks, kSteps);
  for (const bool is_in_backward : {false, true}) {
    OnRanks([&](Communicator& comm) {
      const Way way = is_in_backward ? InBackward(GradientSharding::kStored)
                                     : AfterBackward(GradientSharding::kStored);
      EXPECT_TRUE(
          EqualBits(TrainSlowly(comm, way, kSteps, OneEach()), expected));
    });
  }
}

// A graph that saved a parameter has to notice that it is another one now,
// whoever wrote it.
TEST_P(SlowRanksTest, EveryParameterIsMarkedAsWrittenOnEveryRank) {
  OnRanks([&](Communicator& comm) {
    SlowCommunicator slow(comm, kLags[comm.rank()]);
    LayersRank rank(slow, GetParam());
    for (int64_t step = 0; step < 2; ++step) {
      std::vector<int64_t> before;
      for (const at::Tensor& p : rank.parameters) {
        before.push_back(p._version());
      }
      rank.Step(step);
      for (size_t p = 0; p < before.size(); ++p) {
        EXPECT_GT(rank.parameters[p]._version(), before[p]) << p;
      }
    }
  });
}

// Of what is freed, floats are NaN.
class PoisoningAllocator final : public at::Allocator {
 public:
#if TORCH_VERSION_MAJOR >= 2
  at::DataPtr allocate(size_t bytes) override { return Allocate(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
#else
  at::DataPtr allocate(size_t bytes) const override { return Allocate(bytes); }
#endif

 private:
  static constexpr size_t kHead = 64;

  static at::DataPtr Allocate(size_t bytes) {
    char* const memory = static_cast<char*>(c10::alloc_cpu(kHead + bytes));
    std::memcpy(memory, &bytes, sizeof(bytes));
    return {memory + kHead, memory, &Free, at::Device(at::kCPU)};
  }
  static void Free(void* memory) {
    size_t bytes = 0;
    std::memcpy(&bytes, memory, sizeof(bytes));
    std::memset(static_cast<char*>(memory) + kHead, 0xff, bytes);
    c10::free_cpu(memory);
  }
};

class PoisonScope {
 public:
  PoisonScope() { c10::SetCPUAllocator(&poisoning_, kPriority); }
  ~PoisonScope() { c10::SetCPUAllocator(before_, kPriority); }

 private:
  static constexpr uint8_t kPriority = 255;

  static PoisoningAllocator poisoning_;
  at::Allocator* const before_ = c10::GetCPUAllocator();
};

PoisoningAllocator PoisonScope::poisoning_;

// The compressed copies of buckets belong to nobody but their collectives.
TEST_P(SlowRanksTest, TemporariesLiveAsLongAsTheirCollectives) {
  const PoisonScope poison;
  BucketedDDPOptions options = OneEach();
  options.comm_hook = CompressToBF16();
  Tensors expected;
  RunRanksHere({.ranks = kRanks}, [&](Communicator& comm) {
    LayersRank rank(comm, AfterBackward(GradientSharding::kNone), options);
    for (int64_t step = 0; step < 4; ++step) rank.Step(step);
    if (comm.rank() == 0) expected = Snapshot(rank.parameters);
  });
  OnRanks([&](Communicator& comm) {
    EXPECT_TRUE(EqualBits(TrainSlowly(comm, GetParam(), 4, options), expected));
  });
}

// Eight layers of one size. `num_buckets`: 8 or 1.
std::string ViolationOf(Communicator& comm, GradientSharding sharding,
                        int num_buckets) {
  Module module;
  Tensors layers;
  for (int i = 0; i < 8; ++i) {
    layers.push_back(module.register_parameter("w" + std::to_string(i),
                                               at::full({16, 16}, 0.125f)));
  }
  const int64_t bucket_bytes = 8 / num_buckets * 1024;
  BucketedDDP ddp(module, comm,
                  {.bucket_bytes = bucket_bytes,
                   .first_bucket_bytes = bucket_bytes,
                   .sharding = sharding});
  ddp.BeginForward();
  at::Tensor h = at::full({4, 16}, 1.0 + comm.rank());
  for (const at::Tensor& w : layers) h = h.matmul(w);
  const at::Tensor loss = h.sum();
  PhaseRecord backward{"backward", 0, NowNs(), 0};
  loss.backward();
  backward.end_ns = NowNs();
  ddp.FinishGradientSync();
  EXPECT_EQ(ddp.buckets().size(), static_cast<size_t>(num_buckets));
  return OverlapViolation(comm.recorder(), backward, ddp.buckets(),
                          ddp.ready_ns());
}

TEST(SlowRanksTest, ReductionsRunUnderBackwardUnlessThereIsOneBucket) {
  for (const GradientSharding sharding :
       {GradientSharding::kNone, GradientSharding::kReduced}) {
    OnRanks([&](Communicator& comm) {
      EXPECT_EQ(ViolationOf(comm, sharding, 8), "");
      EXPECT_EQ(ViolationOf(comm, sharding, 1),
                "the first bucket was posted after the last gradient");
    });
  }
}

}  // namespace
}  // namespace trainsys
