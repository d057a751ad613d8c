// What a wrapper refuses, when, and in which words.
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Error;
using collectives::InvalidArgument;
using collectives::RankFunction;
using collectives::RunRanksHere;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using torch::nn::Module;

void OnRanks(int ranks, const RankFunction& fn) {
  RunRanksHere({.ranks = ranks, .timeout = std::chrono::minutes(1)}, fn);
}

std::string Refusal(Module& module, Communicator& comm,
                    BucketedDDPOptions options = {}) {
  return ErrorOf<InvalidArgument>(
      [&] { const BucketedDDP ddp(module, comm, options); });
}

// A module that differs from Usual() in one thing.
struct Difference {
  std::string name;
  std::function<void(Module&)> build;
  std::string rank0_has;
  std::string rank1_has;
};

at::Tensor W() { return at::ones({2, 3}); }

void Usual(Module& m, float value = 1) {
  m.register_parameter("w", at::full({2, 3}, value));
  m.register_parameter("v", at::full({2, 3}, value));
  m.register_buffer("count", at::full({2}, value));
}

void Add(Module& m, const std::vector<std::string>& names,
         const at::Tensor& w) {
  for (const std::string& name : names) {
    m.register_parameter(name, w.clone());
  }
  m.register_buffer("count", at::ones({2}));
}

const std::vector<Difference> kDifferences{
    {"name",
     [](Module& m) {
       Add(m, {"w", "u"}, W());
     },
     "rank 0 has parameter 'v' [2, 3] Float,",
     "rank 1 has parameter 'u' [2, 3] Float"},
    {"order",
     [](Module& m) {
       Add(m, {"v", "w"}, W());
     },
     "rank 0 has parameter 'w' [2, 3] Float,",
     "rank 1 has parameter 'v' [2, 3] Float"},
    {"shape",
     [](Module& m) {
       Add(m, {"w", "v"}, W().t());
     },
     "rank 0 has parameter 'w' [2, 3] Float,",
     "rank 1 has parameter 'w' [3, 2] Float"},
    {"dtype",
     [](Module& m) {
       Add(m, {"w", "v"}, W().to(at::kDouble));
     },
     "rank 0 has parameter 'w' [2, 3] Float,",
     "rank 1 has parameter 'w' [2, 3] Double"},
    {"an extra layer",
     [](Module& m) {
       Usual(m);
       m.register_module("extra", torch::nn::Linear(1, 4));
     },
     "rank 0 has buffer 'count' [2] Float",
     "rank 1 has parameter 'extra.weight' [4, 1] Float"},
    {"one parameter fewer", [](Module& m) { Add(m, {"w"}, W()); },
     "rank 0 has parameter 'v' [2, 3] Float,",
     "rank 1 has buffer 'count' [2] Float"},
    {"one buffer fewer",
     [](Module& m) {
       m.register_parameter("w", W());
       m.register_parameter("v", W());
     },
     "rank 0 has buffer 'count' [2] Float", "rank 1 has nothing"},
    {"frozen",
     [](Module& m) {
       m.register_parameter("w", W(), /*requires_grad=*/false);
       Add(m, {"v"}, W());
     },
     "rank 0 has parameter 'w' [2, 3] Float,",
     "rank 1 has parameter 'w' [2, 3] Float frozen"},
    {"tied",
     [](Module& m) {
       m.register_parameter("v", m.register_parameter("w", W()));
       m.register_buffer("count", at::ones({2}));
     },
     "rank 0 has parameter 'v' [2, 3] Float,",
     "rank 1 has parameter 'v' [2, 3] Float tied to 'w'"},
};

TEST(RefusedTest, ModulesThatDifferWithBothSidesBeforeAnythingIsCopied) {
  for (const Difference& difference : kDifferences) {
    SCOPED_TRACE(difference.name);
    std::vector<std::string> texts(3);
    OnRanks(3, [&](Communicator& comm) {
      Module module;
      if (comm.rank() == 1) {
        difference.build(module);
      } else {
        Usual(module, static_cast<float>(comm.rank()));
      }
      const std::vector<at::Tensor> before = Snapshot(module.parameters());
      texts[static_cast<size_t>(comm.rank())] = Refusal(module, comm);
      EXPECT_TRUE(EqualBits(module.parameters(), before));
    });
    EXPECT_THAT(texts, Each(AllOf(HasSubstr(difference.rank0_has),
                                  HasSubstr(difference.rank1_has))));
  }
}

TEST(RefusedTest, AModuleWithNothingToTrain) {
  OnRanks(2, [](Communicator& comm) {
    Module none, frozen;
    frozen.register_parameter("w", W(), /*requires_grad=*/false);
    for (Module* module : {&none, &frozen}) {
      EXPECT_THAT(Refusal(*module, comm),
                  HasSubstr("no parameter that requires a gradient"));
    }
  });
}

TEST(RefusedTest, ALayerThatMakesSparseGradients) {
  OnRanks(2, [](Communicator& comm) {
    Module table, bag;
    table.register_module(
        "table",
        torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)));
    bag.register_module("bag",
                        torch::nn::EmbeddingBag(
                            torch::nn::EmbeddingBagOptions(4, 2).sparse(true)));
    EXPECT_THAT(Refusal(table, comm), HasSubstr("'table.weight'"));
    EXPECT_THAT(Refusal(bag, comm), HasSubstr("'bag.weight'"));
    Module dense;
    dense.register_module("table", torch::nn::Embedding(4, 2));
    EXPECT_EQ(Refusal(dense, comm), "no error");
  });
}

TEST(RefusedTest, ASparseGradientThatNoLayerAnnounced) {
  OnRanks(2, [](Communicator& comm) {
    Module module;
    const at::Tensor table =
        module.register_parameter("table", Random(1, {4, 2}));
    BucketedDDP ddp(module, comm);
    const auto step = [&](bool sparse) {
      ddp.BeginForward();
      at::embedding(table, at::tensor({comm.rank(), 3}), -1, false, sparse)
          .sum()
          .backward();
    };
    const std::string text = ErrorOf<Error>([&] { step(true); });
    EXPECT_THAT(text, AllOf(HasSubstr("'table'"), HasSubstr("sparse")));
    ddp.Reset(text);
    step(false);
    ddp.FinishGradientSync();
    EXPECT_TRUE(EqualBits({table.grad()}, {at::tensor({0.5f, 0.5f, 0.5f, 0.5f,
                                                       0.f, 0.f, 1.f, 1.f})
                                               .view({4, 2})}));
  });
}

TEST(RefusedTest, BucketSizesThatCannotBeMeant) {
  OnRanks(2, [](Communicator& comm) {
    Module module;
    AddLayers(module, 0);
    for (const int64_t bytes :
         {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(),
          BucketLimits::kMost + 1, std::numeric_limits<int64_t>::max()}) {
      const std::string is = " is " + std::to_string(bytes) + ", expected";
      EXPECT_THAT(Refusal(module, comm, {.bucket_bytes = bytes}),
                  HasSubstr("bucket_bytes" + is));
      EXPECT_THAT(Refusal(module, comm, {.first_bucket_bytes = bytes}),
                  HasSubstr("first_bucket_bytes" + is));
    }
  });
}

// The limits that are not refused, and what is between.
TEST(RefusedTest, NoBucketSizeChangesTheBits) {
  Module reference;
  const Tensors one = AddLayers(reference, 0);
  const Tensors expected = MicroStepGradients(
      one, 3, [&](int rank) { return LayersLoss(one, InputOf(rank)); });
  struct Case {
    int64_t bucket_bytes;
    size_t num_buckets;
  };
  for (const Case c : {Case{1, 6}, Case{1024, 3}, Case{1 << 20, 1},
                       Case{BucketLimits::kMost, 1}}) {
    OnRanks(3, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      BucketedDDP ddp(module, comm,
                      {.bucket_bytes = c.bucket_bytes,
                       .first_bucket_bytes = c.bucket_bytes});
      for (int step = 0; step < 2; ++step) {
        EXPECT_EQ(ddp.buckets().size(), c.num_buckets);
        ddp.ZeroGrad();
        ddp.BeginForward();
        LayersLoss(parameters, InputOf(comm.rank())).backward();
        ddp.FinishGradientSync();
        EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
      }
    });
  }
}

}  // namespace
}  // namespace trainsys
