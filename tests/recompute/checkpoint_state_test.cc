// Random numbers and thread-local state: the second run has the first one's.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <vector>

#include "tests/recompute/segments.h"
#include "trainsys/random/rank_generator.h"
#include "trainsys/recompute/checkpoint.h"

namespace trainsys {
namespace {

TEST_F(CheckpointTest, DropoutRepeatsItsNumbersOverAccumulatedBackwards) {
  const std::vector<Block> blocks{Block(8, 16, 0.5), Block(8, 16, 0.3),
                                  Block(8, 16, 0.1)};
  const at::Tensor x = at::randn({4, 8});
  const auto run = [&](Mode mode) {
    const RankGeneratorScope scope(MakeRankGenerator(1, 2, 3));
    for (int i = 0; i < 3; ++i) {
      at::Tensor y = x;
      for (const Block& block : blocks) y = Apply(mode, block, y);
      Loss(y).backward();
    }
    Tensors result = TakeGradients(ParametersOf(blocks));
    result.push_back(at::rand({4}));  // as far along as without recomputation
    return result;
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(CheckpointTest, BackwardOutsideTheGeneratorsScopeRepeatsItsNumbers) {
  const std::vector<Block> blocks{Block(8, 16, 0.3)};
  const at::Tensor x = at::randn({4, 8});
  const auto run = [&](Mode mode) {
    at::Tensor y;
    {
      const RankGeneratorScope scope(MakeRankGenerator(1, 2, 3));
      y = Apply(mode, blocks[0], x);
    }
    Loss(y).backward();
    return TakeGradients(ParametersOf(blocks));
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(CheckpointTest, AnExceptionInTheSecondRunLeavesTheGeneratorInPlace) {
  const at::Tensor x = at::ones({4}).set_requires_grad(true);
  const at::Tensor y = Checkpoint(
      [](const at::Tensor& t) -> at::Tensor {
        const at::Tensor r = (t * at::rand({4})).exp();
        if (IsRecomputing()) throw OwnException("second run");
        return r;
      },
      x);
  const at::Tensor before = CurrentGenerator().get_state();
  EXPECT_THROW(y.sum().backward(), OwnException);
  EXPECT_TRUE(at::equal(CurrentGenerator().get_state(), before));
}

TEST_F(CheckpointTest, TheMaskOfTheSecondRunIsThatOfTheFirst) {
  Tensors masks;
  const at::Tensor x = at::ones({64}).set_requires_grad(true);
  const at::Tensor y = Checkpoint(
      [&](const at::Tensor& t) {
        masks.push_back(at::dropout(t, 0.5, /*train=*/true).detach());
        return (t * masks.back()).exp();
      },
      x);
  y.sum().backward();
  ASSERT_EQ(masks.size(), 2u);
  EXPECT_TRUE(at::equal(masks[0], masks[1]));
  EXPECT_FALSE(at::equal(masks[0], masks[0].flip({0})));
}

// A test without the fixture: no RankGeneratorScope anywhere.
TEST(CheckpointWithoutAScopeTest, RepeatsTheNumbersOfLibtorchsOwnGenerator) {
  at::manual_seed(3);
  const std::vector<Block> blocks{Block(8, 16, 0.3), Block(8, 16, 0.3)};
  const at::Tensor x = at::randn({4, 8});
  const auto run = [&](Mode mode) {
    at::manual_seed(5);
    Tensors result = Gradients(mode, blocks, x);
    result.push_back(at::rand({4}));
    return result;
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(CheckpointTest, RepeatsTheNumbersOfAGeneratorThatTheFunctionNames) {
  const at::Tensor x = at::randn({16}).set_requires_grad(true);
  const auto run = [&](Mode mode) {
    const at::Generator own = MakeRankGenerator(9, 0, 0);
    const Layer layer = [&](const at::Tensor& t) {
      const at::Tensor noise = at::rand({16}, own) + at::rand({16});
      return (t * noise + at::randn({16}, own)).exp();
    };
    Apply(mode, layer, Apply(mode, layer, x)).sum().backward();
    Tensors result = TakeGradients({x});
    result.push_back(at::rand({4}, own));
    return result;
  };
  const auto seeded = [&](Mode mode) {
    const RankGeneratorScope scope(MakeRankGenerator(1, 2, 3));
    return run(mode);
  };
  ExpectSameBits(seeded(Mode::kCheckpointed), seeded(Mode::kPlain));
}

TEST_F(CheckpointTest, AGeneratorMadeInsideTheFunctionIsMadeAgain) {
  const at::Tensor x = at::randn({16}).set_requires_grad(true);
  const Layer layer = [](const at::Tensor& t) {
    return (t * at::rand({16}, MakeRankGenerator(4, 0, 0))).exp();
  };
  const auto run = [&](Mode mode) {
    Apply(mode, layer, x).sum().backward();
    return TakeGradients({x});
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

// Even one that the first run had not drawn from.
TEST_F(CheckpointTest, TheSecondRunLeavesEveryGeneratorAsItFoundIt) {
  const at::Generator own = MakeRankGenerator(9, 0, 0);
  const at::Tensor x = at::ones({4}).set_requires_grad(true);
  const at::Tensor y = Checkpoint(
      [&](const at::Tensor& t) {
        if (IsRecomputing()) at::rand({4}, own);
        return (t * at::rand({4})).exp();
      },
      x);
  const at::Tensor own_before = own.get_state();
  at::rand({7});
  const at::Tensor before = CurrentGenerator().get_state();
  y.sum().backward();
  EXPECT_TRUE(at::equal(own.get_state(), own_before));
  EXPECT_TRUE(at::equal(CurrentGenerator().get_state(), before));
}

#if TORCH_VERSION_MAJOR >= 2
constexpr at::ScalarType kAnotherDtype = at::kHalf;
#else
constexpr at::ScalarType kAnotherDtype = at::kBFloat16;  // the only one
#endif

bool IsAutocastOn() {
#if TORCH_VERSION_MAJOR >= 2
  return at::autocast::is_autocast_enabled(at::kCPU);
#else
  return at::autocast::is_cpu_enabled();
#endif
}

void SwitchAutocast(bool is_on, at::ScalarType dtype) {
#if TORCH_VERSION_MAJOR >= 2
  at::autocast::set_autocast_enabled(at::kCPU, is_on);
  at::autocast::set_autocast_dtype(at::kCPU, dtype);
#else
  at::autocast::set_cpu_enabled(is_on);
  at::autocast::set_autocast_cpu_dtype(dtype);
#endif
}

class AutocastScope {
 public:
  AutocastScope() { SwitchAutocast(true, at::kBFloat16); }
  ~AutocastScope() {
    SwitchAutocast(false, at::kBFloat16);
    at::autocast::clear_cache();
  }
};

// With the cache, a weight that is used twice is cast once.
TEST_F(CheckpointTest, AutocastOfTheForwardHoldsInABackwardWithoutIt) {
  const Block block(8, 16);
  const at::Tensor x = at::randn({4, 8}).set_requires_grad(true);
  Tensors products;
  const Layer layer = [&](const at::Tensor& t) {
    products.push_back(at::linear(t, block.parameters[0]).detach());
    return at::linear(at::linear(t, block.parameters[0]).exp(),
                      block.parameters[2])
        .to(at::kFloat);
  };
  const auto run = [&](Mode mode) {
    at::Tensor loss;
    {
      const AutocastScope autocast;
      loss = Loss(Apply(mode, layer, Apply(mode, layer, x)));
    }
    SwitchAutocast(false, kAnotherDtype);
    loss.backward();
    EXPECT_FALSE(IsAutocastOn());
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
    return TakeGradients({block.parameters[0], block.parameters[2], x});
  };
  const Tensors plain = run(Mode::kPlain);
  ExpectSameBits(run(Mode::kCheckpointed), plain);
  ASSERT_EQ(products.size(), 6u);
  for (const at::Tensor& product : products) {
    EXPECT_EQ(product.scalar_type(), at::kBFloat16);
  }
}

TEST_F(CheckpointTest, AnExceptionInTheSecondRunLeavesAutocastOff) {
  const at::Tensor x = at::ones({4}).set_requires_grad(true);
  at::Tensor y;
  {
    const AutocastScope autocast;
    y = Checkpoint(
        [](const at::Tensor& t) {
          const at::Tensor r = t.exp();
          EXPECT_TRUE(IsAutocastOn());
          if (IsRecomputing()) throw OwnException("second run");
          return r;
        },
        x);
  }
  EXPECT_THROW(y.sum().backward(), OwnException);
  EXPECT_FALSE(IsAutocastOn());
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
}

TEST_F(CheckpointTest, APartWithoutGradientsStaysWithoutInTheSecondRun) {
  const at::Tensor x = at::randn({4}).set_requires_grad(true);
  const Layer layer = [](const at::Tensor& t) {
    at::Tensor scale;
    {
      const c10::NoGradGuard no_grad;
      scale = t.exp().exp();
      EXPECT_FALSE(scale.requires_grad());
    }
    return (t * scale).exp();
  };
  const auto run = [&](Mode mode) {
    Apply(mode, layer, x).sum().backward();
    return TakeGradients({x});
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(CheckpointTest, BackwardMayBeCalledWithGradientsSwitchedOff) {
  const Block block(8, 16);
  const at::Tensor x = at::randn({4, 8});
  const auto run = [&](Mode mode) {
    const at::Tensor loss = Loss(Apply(mode, block, x));
    const c10::NoGradGuard no_grad;
    loss.backward();
    EXPECT_FALSE(c10::GradMode::is_enabled());
    return TakeGradients(block.parameters);
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

}  // namespace
}  // namespace trainsys
