#include "trainsys/ddp/module_parameters.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <memory>

#include "collectives/errors.h"
#include "tests/ddp/layers.h"
#include "trainsys/memory/ledger.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::nn::Module;

// Module itself has no shared_ptr to hand to register_module.
struct Table : Module {};

std::shared_ptr<Module> Child(int64_t elems) {
  const auto child = std::make_shared<Table>();
  child->register_parameter("w", at::ones({elems}));
  child->register_parameter("b", at::ones({elems}));
  return child;
}

std::vector<int64_t> ElemsOf(const NamedTensors& parameters) {
  std::vector<int64_t> elems;
  for (const at::Tensor& t : parameters.tensors) elems.push_back(t.numel());
  return elems;
}

TEST(ModuleParametersTest, TheyComeInTheOrderOfRegistration) {
  Table module;
  module.register_module("z", Child(1));
  module.register_parameter("y", at::ones({2}));
  module.register_module("a", Child(3));
  module.register_parameter("x", at::ones({4}));
  const NamedTensors parameters = ParametersOf(module);
  EXPECT_THAT(parameters.names,
              ElementsAre("y", "x", "z.w", "z.b", "a.w", "a.b"));
  EXPECT_THAT(ElemsOf(parameters), ElementsAre(2, 4, 1, 1, 3, 3));
}

TEST(ModuleParametersTest, ATiedOneComesOnceUnderItsFirstName) {
  Table module;
  const auto child = module.register_module("first", Child(1));
  module.register_module("again", child);
  const at::Tensor own = module.register_parameter("own", at::ones({2}));
  module.register_parameter("tied", own);
  module.register_module("other", Child(3))
      ->register_parameter("tied", child->parameters()[0]);
  const NamedTensors parameters = ParametersOf(module);
  EXPECT_THAT(parameters.names,
              ElementsAre("own", "first.w", "first.b", "other.w", "other.b"));
  EXPECT_THAT(ElemsOf(parameters), ElementsAre(2, 1, 1, 3, 3));
}

TEST(ModuleParametersTest, ThoseWithEqualValuesAreNotTied) {
  Table module;
  const at::Tensor w = module.register_parameter("w", at::ones({2}));
  module.register_parameter("alias", w.detach());
  EXPECT_THAT(ParametersOf(module).names, ElementsAre("w", "alias"));
}

TEST(ModuleParametersTest, FrozenOnesAreNotTrained) {
  Table module;
  module.register_parameter("a", at::ones({1}), /*requires_grad=*/false);
  module.register_parameter("b", at::ones({2}));
  const auto child = module.register_module("child", Child(3));
  child->parameters()[0].set_requires_grad(false);
  EXPECT_EQ(ParametersOf(module).names.size(), 4);
  const NamedTensors trained = TrainedOf(ParametersOf(module));
  EXPECT_THAT(trained.names, ElementsAre("b", "child.b"));
  EXPECT_THAT(ElemsOf(trained), ElementsAre(2, 3));
}

TEST(ModuleParametersTest, NothingToTrainIsRefused) {
  Table module;
  const auto error = [&] {
    return ErrorOf<InvalidArgument>([&] { TrainedOf(ParametersOf(module)); });
  };
  EXPECT_THAT(error(), HasSubstr("no parameter that requires a gradient"));
  module.register_parameter("a", at::ones({1}), /*requires_grad=*/false);
  module.register_buffer("count", at::ones({1}));
  EXPECT_THAT(error(), HasSubstr("no parameter that requires a gradient"));
}

TEST(ModuleParametersTest, TheLedgerIsToldWhatParametersAndBuffersAre) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  Table module;
  module.register_module("child", Child(3));
  module.register_parameter("w", at::ones({5}), /*requires_grad=*/false);
  module.register_buffer("count", at::ones({7}));
  AttributeMemoryOf(module);
  EXPECT_EQ(ledger.Current()[MemoryCategory::kParameter], 4 * (3 + 3 + 5));
  EXPECT_EQ(ledger.Current()[MemoryCategory::kOther], 4 * 7);
  EXPECT_EQ(ledger.Current().Total(), 4 * (3 + 3 + 5 + 7));
}

TEST(ModuleParametersTest, SparseGradientsAreRefusedWithTheParametersName) {
  const auto error_of = [](const Module& module) {
    return ErrorOf<InvalidArgument>([&] { RefuseSparseGradients(module); });
  };
  const torch::nn::Embedding embedding(
      torch::nn::EmbeddingOptions(4, 2).sparse(true));
  const torch::nn::EmbeddingBag bag(
      torch::nn::EmbeddingBagOptions(4, 2).sparse(true));
  EXPECT_THAT(error_of(*embedding), HasSubstr("parameter 'weight' "));
  EXPECT_THAT(error_of(*bag), HasSubstr("parameter 'weight' "));
  for (const std::shared_ptr<Module>& layer :
       {std::shared_ptr<Module>(embedding.ptr()),
        std::shared_ptr<Module>(bag.ptr())}) {
    Table module;
    module.register_module("layers", Child(1))->register_module("in", layer);
    EXPECT_THAT(error_of(module), HasSubstr("parameter 'layers.in.weight' "));
  }
}

TEST(ModuleParametersTest, AllThatGetSparseGradientsAreListed) {
  const auto sparse = torch::nn::EmbeddingOptions(4, 2).sparse(true);
  Table module;
  module.register_module("z", torch::nn::Embedding(sparse));
  module.register_module("dense", torch::nn::Embedding(4, 2));
  module.register_module("a", torch::nn::Embedding(sparse));
  EXPECT_THAT(SparseParametersOf(module), ElementsAre("z.weight", "a.weight"));
}

TEST(ModuleParametersTest, DenseEmbeddingsAreNotRefused) {
  Table module;
  module.register_module("in", torch::nn::Embedding(4, 2));
  module.register_module("bag", torch::nn::EmbeddingBag(4, 2));
  RefuseSparseGradients(module);
  EXPECT_TRUE(SparseParametersOf(module).empty());
}

}  // namespace
}  // namespace trainsys
