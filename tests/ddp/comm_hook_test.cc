#include "trainsys/ddp/comm_hook.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Record;
using collectives::ReduceOp;
using collectives::RunRanksHere;
using collectives::Work;
using ::testing::StartsWith;
using torch::nn::Module;

// Two of them, each with a bucket of its own.
const std::vector<std::vector<int64_t>> kSizes{{5, 7}, {33}};

Tensors AddParameters(Module& module, at::ScalarType dtype) {
  Tensors parameters;
  for (size_t p = 0; p < kSizes.size(); ++p) {
    parameters.push_back(module.register_parameter(
        "p" + std::to_string(p), at::zeros(kSizes[p], dtype)));
  }
  return parameters;
}

// A rank's gradient: numbers that no 16-bit format holds, and so far apart that
// adding them up in another order gives other bits.
at::Tensor Slope(size_t parameter, int rank, at::ScalarType dtype) {
  const at::Tensor numbers =
      Random(10 * static_cast<uint64_t>(rank) + parameter, kSizes[parameter],
             at::kDouble);
  return (numbers * std::ldexp(1.0, -10 * (rank % 3))).to(dtype);
}

at::Tensor Loss(const Tensors& parameters, int rank) {
  const at::ScalarType dtype = parameters[0].scalar_type();
  return (parameters[0] * Slope(0, rank, dtype)).sum() +
         (parameters[1] * Slope(1, rank, dtype)).sum();
}

BucketedDDPOptions With(CommHook hook) {
  return {.bucket_bytes = 1, .comm_hook = std::move(hook)};
}

// The ranks' gradients, each times its rank's weight.
Tensors WeighedSlopes(size_t parameter, const std::vector<double>& weights,
                      at::ScalarType dtype) {
  Tensors slopes;
  for (size_t r = 0; r < weights.size(); ++r) {
    slopes.push_back(Slope(parameter, static_cast<int>(r), dtype) * weights[r]);
  }
  return slopes;
}

// Converts what each rank gives to `travels`, adds up in rank order in `folds`.
at::Tensor Fold(const Tensors& slopes, at::ScalarType travels,
                at::ScalarType folds) {
  at::Tensor sum = slopes[0].to(travels).to(folds);
  for (size_t r = 1; r < slopes.size(); ++r) {
    sum = sum + slopes[r].to(travels).to(folds);
  }
  return sum;
}

struct HookCase {
  std::string name;
  CommHook hook;
  // What becomes of the ranks' gradients; `divisor`: of their average, else 1.
  std::function<at::Tensor(const Tensors& slopes, double divisor)> reduction;
  // Bytes sent for each that NoCompression sends.
  std::function<double(int ranks)> share;
  bool averages_sums = false;
};

double All(int) { return 1; }
double Half(int) { return 0.5; }
// Half the bytes, but to every rank and not there and back.
double HalfToEach(int ranks) { return 0.5 * ranks / 2; }

at::Tensor InTheirOwnType(const Tensors& slopes, double divisor) {
  const at::ScalarType dtype = slopes[0].scalar_type();
  return Fold(slopes, dtype, dtype) / divisor;
}

// Both ways in 16 bits; the fold is in f32.
std::function<at::Tensor(const Tensors&, double)> ThereAndBackIn(
    at::ScalarType travels) {
  return [travels](const Tensors& slopes, double divisor) {
    return (Fold(slopes, travels, at::kFloat) / divisor)
        .to(travels)
        .to(slopes[0].scalar_type());
  };
}

at::Tensor ThereInBF16(const Tensors& slopes, double divisor) {
  return Fold(slopes, at::kBFloat16, slopes[0].scalar_type()) / divisor;
}

const std::vector<HookCase>& Cases() {
  static const std::vector<HookCase> cases{
      {"NoCompression", NoCompression(), InTheirOwnType, All},
      {"CompressToBF16", CompressToBF16(), ThereAndBackIn(at::kBFloat16), Half,
       true},
      {"CompressToF16", CompressToF16(), ThereAndBackIn(at::kHalf), Half, true},
      {"GatherBF16", GatherBF16(), ThereInBF16, HalfToEach},
  };
  return cases;
}

class CommHookTest : public testing::TestWithParam<HookCase> {};

INSTANTIATE_TEST_SUITE_P(Hooks, CommHookTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(CommHookTest, TheMeanIsRoundedAsComputedByHand) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (int ranks : {1, 2, 3, 4}) {
      SCOPED_TRACE(std::string(c10::toString(dtype)) + ", ranks " +
                   std::to_string(ranks));
      RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
        Module module;
        const Tensors parameters = AddParameters(module, dtype);
        BucketedDDP ddp(module, comm, With(GetParam().hook));
        const std::vector<double> weights(static_cast<size_t>(ranks), 1);
        for (int step = 0; step < 2; ++step) {
          ddp.ZeroGrad();
          ddp.BeginForward();
          Loss(parameters, comm.rank()).backward();
          ddp.FinishGradientSync();
          for (size_t p = 0; p < parameters.size(); ++p) {
            const Tensors slopes = WeighedSlopes(p, weights, dtype);
            EXPECT_TRUE(EqualBits({parameters[p].grad()},
                                  {GetParam().reduction(slopes, ranks)}));
          }
        }
      });
    }
  }
}

// What travels in 16 bits is an average there too: a sum may be too large.
TEST_P(CommHookTest, WithWeightsTheReductionIsDividedAfterwards) {
  const std::vector<double> weights{3, 1, 2};
  for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddParameters(module, dtype);
      BucketedDDPOptions options = With(GetParam().hook);
      options.weigh_losses = true;
      BucketedDDP ddp(module, comm, options);
      ddp.BeginForward();
      const auto own = static_cast<size_t>(comm.rank());
      ddp.Weigh(Loss(parameters, comm.rank()), weights[own]).backward();
      ddp.FinishGradientSync();
      for (size_t p = 0; p < parameters.size(); ++p) {
        const Tensors slopes = WeighedSlopes(p, weights, dtype);
        const double divisor = GetParam().averages_sums ? 3 : 1;
        EXPECT_TRUE(
            EqualBits({parameters[p].grad()},
                      {GetParam().reduction(slopes, divisor) * divisor / 6}));
      }
    });
  }
}

TEST_P(CommHookTest, GradientsOf16BitsTravelAsTheyAre) {
  for (at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddParameters(module, dtype);
      BucketedDDP ddp(module, comm, With(GetParam().hook));
      ddp.BeginForward();
      for (size_t p = 0; p < parameters.size(); ++p) {
        parameters[p].mutable_grad() = Slope(p, comm.rank(), dtype);
      }
      ddp.ReduceNow();
      for (size_t p = 0; p < parameters.size(); ++p) {
        const Tensors slopes = WeighedSlopes(p, {1, 1, 1}, dtype);
        EXPECT_TRUE(EqualBits({parameters[p].grad()},
                              {ThereAndBackIn(dtype)(slopes, 3)}));
      }
    });
  }
}

// What carries a bucket, however it does, has its label.
std::vector<Record> Carriers(Communicator& comm) {
  std::vector<Record> carriers;
  for (const Record& record : comm.recorder().Records()) {
    if (record.label.starts_with("bucket ")) carriers.push_back(record);
  }
  return carriers;
}

TEST_P(CommHookTest, BucketsArePostedInOrderInsideBackwardAndSendLess) {
  for (int ranks : {2, 4}) {
    RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddParameters(module, at::kFloat);
      BucketedDDP ddp(module, comm, With(GetParam().hook));
      ddp.BeginForward();
      const at::Tensor loss = Loss(parameters, comm.rank());
      EXPECT_TRUE(Carriers(comm).empty());
      loss.backward();
      const std::vector<Record> posted = Carriers(comm);
      ASSERT_EQ(posted.size(), 2u);
      double sent = 0;
      for (size_t b = 0; b < posted.size(); ++b) {
        EXPECT_EQ(posted[b].label, "bucket " + std::to_string(b));
        EXPECT_TRUE(posted[b].is_async);
        EXPECT_EQ(posted[b].wait_began_ns, 0) << "nobody waited in backward";
        sent += static_cast<double>(posted[b].sent_bytes);
      }
      ddp.FinishGradientSync();
      EXPECT_EQ(Carriers(comm).size(), 2u);
      // Two buckets of 48 f32, padding included.
      const double uncompressed = 2 * 2 * 48 * 4 * (ranks - 1.0) / ranks;
      EXPECT_EQ(sent, uncompressed * GetParam().share(ranks));
    });
  }
}

TEST(OwnCommHookTest, AHookMayChangeWhatItPostsAndWhatComesBack) {
  const CommHook hook = [](const FullBucket& bucket, Communicator& comm) {
    EXPECT_THAT(bucket.label, StartsWith("bucket "));
    EXPECT_EQ(bucket.op, ReduceOp::kAverage);
    bucket.flat.mul_(4);
    Work work = NoCompression()(bucket, comm);
    work.OnDone([flat = bucket.flat] { flat.add_(1); });
    return work;
  };
  RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
    Module module;
    const Tensors parameters = AddParameters(module, at::kFloat);
    BucketedDDP ddp(module, comm, With(hook));
    for (int step = 0; step < 2; ++step) {
      ddp.ZeroGrad();
      ddp.BeginForward();
      Loss(parameters, comm.rank()).backward();
      ddp.FinishGradientSync();
      for (size_t p = 0; p < parameters.size(); ++p) {
        const Tensors slopes = WeighedSlopes(p, {4, 4, 4}, at::kFloat);
        EXPECT_TRUE(
            EqualBits({parameters[p].grad()}, {InTheirOwnType(slopes, 3) + 1}));
      }
    }
  });
}

TEST(CommHookSizeTest, ASumTooLargeFor16BitsIsNoInfinity) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    Module module;
    const at::Tensor wide = module.register_parameter("wide", at::zeros({3}));
    const at::Tensor narrow =
        module.register_parameter("narrow", at::zeros({3}, at::kHalf));
    BucketedDDPOptions options = With(CompressToF16());
    options.weigh_losses = true;
    BucketedDDP ddp(module, comm, options);
    ddp.BeginForward();
    const at::Tensor loss = wide.sum() + narrow.to(at::kFloat).sum();
    ddp.Weigh(loss, 40000).backward();
    ddp.FinishGradientSync();
    EXPECT_EQ(wide.grad()[0].item<float>(), 1);
    EXPECT_EQ(narrow.grad()[0].item<float>(), 1);
  });
}

}  // namespace
}  // namespace trainsys
