#include "trainsys/recompute/checkpoint.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/errors.h"
#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/random/rank_generator.h"

namespace trainsys {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Layer = std::function<at::Tensor(const at::Tensor&)>;
using Tensors = std::vector<at::Tensor>;

at::Tensor Parameter(at::IntArrayRef sizes) {
  return at::randn(sizes).mul_(0.1).set_requires_grad(true);
}

// x + Linear(hidden, width)(Dropout(GELU(Linear(width, hidden)(x))))
struct Block {
  explicit Block(int64_t width, int64_t hidden, double dropout = 0)
      : parameters{Parameter({hidden, width}), Parameter({hidden}),
                   Parameter({width, hidden}), Parameter({width})},
        dropout(dropout) {}

  // x: [rows, width]
  at::Tensor operator()(const at::Tensor& x) const {
    at::Tensor h = at::gelu(at::linear(x, parameters[0], parameters[1]));
    if (dropout > 0) h = at::dropout(h, dropout, /*train=*/true);
    return x + at::linear(h, parameters[2], parameters[3]);
  }

  Tensors parameters;
  double dropout;
};

enum class Mode { kPlain, kCheckpointed };

at::Tensor Apply(Mode mode, Layer layer, const at::Tensor& x) {
  return mode == Mode::kPlain ? layer(x) : Checkpoint(std::move(layer), x);
}

at::Tensor Loss(const at::Tensor& y) { return y.pow(2).mean(); }

Tensors ParametersOf(const std::vector<Block>& blocks) {
  Tensors all;
  for (const Block& block : blocks) {
    all.insert(all.end(), block.parameters.begin(), block.parameters.end());
  }
  return all;
}

Tensors TakeGradients(const Tensors& tensors) {
  Tensors gradients;
  for (const at::Tensor& t : tensors) {
    gradients.push_back(t.grad().defined() ? t.grad().clone() : at::Tensor());
    t.mutable_grad().reset();
  }
  return gradients;
}

void ExpectSameBits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(a[i].defined() && b[i].defined()) << "gradient " << i;
    EXPECT_TRUE(at::equal(a[i], b[i])) << "gradient " << i;
  }
}

// The gradients of x and of all parameters.
Tensors Gradients(Mode mode, const std::vector<Block>& blocks,
                  const at::Tensor& x) {
  at::Tensor y = x;
  for (const Block& block : blocks) y = Apply(mode, block, y);
  Loss(y).backward();
  Tensors all = ParametersOf(blocks);
  if (x.requires_grad()) all.push_back(x);
  return TakeGradients(all);
}

class CheckpointTest : public ::testing::Test {
 private:
  RankGeneratorScope generator_{MakeRankGenerator(7, 0, 0)};
};

struct Measured {
  Tensors gradients;
  int64_t raw_bytes;
  int64_t distinct_bytes;
  int64_t peak_distinct_bytes;
  int64_t left_bytes;
};

Measured Measure(Mode mode, const std::vector<Block>& blocks,
                 const at::Tensor& x) {
  const SavedBytesScope saved(ParametersOf(blocks));
  at::Tensor y = x;
  for (const Block& block : blocks) {
    const Layer layer = [&](const at::Tensor& t) {
      const Tensors& p = block.parameters;
      return at::linear(at::gelu(at::linear(t, p[0], p[1])), p[2], p[3]);
    };
    y = Apply(mode, layer, y) + y;
  }
  const at::Tensor loss = Loss(y);
  y.reset();
  Measured m{{}, saved.raw_bytes(), saved.distinct_bytes(), 0, 0};
  loss.backward();
  m.peak_distinct_bytes = saved.peak_distinct_bytes();
  m.left_bytes = saved.distinct_bytes();
  m.gradients = TakeGradients(ParametersOf(blocks));
  if (x.requires_grad()) m.gradients.push_back(TakeGradients({x})[0]);
  return m;
}

void ExpectInputsOnly(bool input_requires_grad, int64_t plain_raw_bytes) {
  std::vector<Block> blocks;
  for (int i = 0; i < 4; ++i) blocks.emplace_back(256, 1024);
  const at::Tensor x = at::randn({64, 256});
  x.set_requires_grad(input_requires_grad);
  const Measured plain = Measure(Mode::kPlain, blocks, x);
  const Measured ours = Measure(Mode::kCheckpointed, blocks, x);
  ExpectSameBits(plain.gradients, ours.gradients);

  constexpr int64_t kInput = 64 * 256 * 4;
  constexpr int64_t kHidden = 64 * 1024 * 4;
  EXPECT_EQ(plain.raw_bytes, plain_raw_bytes);
  EXPECT_EQ(plain.distinct_bytes, 4 * (kInput + 2 * kHidden) + kInput);
  EXPECT_EQ(ours.raw_bytes, 327'680);  // four inputs and pow's
  EXPECT_EQ(ours.distinct_bytes, 5 * kInput);
  // One segment at a time: its hidden tensors, and what was kept anyway.
  EXPECT_LE(ours.peak_distinct_bytes, 5 * kInput + 2 * kHidden);
  EXPECT_GE(ours.peak_distinct_bytes, 4 * kInput + 2 * kHidden);
  EXPECT_EQ(plain.left_bytes, 0);
  EXPECT_EQ(ours.left_bytes, 0);
}

// Raw, plain: four blocks of one input, two hidden tensors and two weights,
// and pow's input: 4 * (64*256 + 2*64*1024 + 2*256*1024) * 4 + 64*256*4.
TEST_F(CheckpointTest, FourBlocksKeepTheirInputsOnlyAndTheSameBits) {
  ExpectInputsOnly(/*input_requires_grad=*/true, 10'813'440);
}

// The first block's first weight, 256*1024*4, is not saved then.
TEST_F(CheckpointTest, FourBlocksOnAnInputWithoutGradientDoTheSame) {
  ExpectInputsOnly(/*input_requires_grad=*/false, 9'764'864);
}

TEST_F(CheckpointTest, ABlockUsedThreeTimesGetsEachGradientAndHookOnce) {
  const Block block(8, 16);
  const std::vector<Block> tied{block, block, block};  // the same tensors
  const at::Tensor x = at::randn({4, 8}).set_requires_grad(true);
  std::vector<int> calls(4, 0);
  std::vector<GradientHook> hooks;
  for (size_t i = 0; i < 4; ++i) {
    hooks.emplace_back(block.parameters[i], [&calls, i] { ++calls[i]; });
  }
  const auto run = [&](Mode mode) {
    at::Tensor y = x;
    for (const Block& b : tied) y = Apply(mode, b, y);
    Loss(y).backward();
    Tensors all = block.parameters;
    all.push_back(x);
    return TakeGradients(all);
  };
  const Tensors plain = run(Mode::kPlain);
  EXPECT_THAT(calls, Each(1));
  ExpectSameBits(run(Mode::kCheckpointed), plain);
  EXPECT_THAT(calls, Each(2));
}

TEST_F(CheckpointTest, DropoutRepeatsItsNumbersOverAccumulatedBackwards) {
  const std::vector<Block> blocks{Block(8, 16, 0.3), Block(8, 16, 0.3)};
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

// Checkpoint(block 0, then Checkpoint(block 1, then Checkpoint(...)))
at::Tensor Nested(const std::vector<Block>& blocks, size_t first,
                  const at::Tensor& x) {
  if (first == blocks.size()) return x;
  return Checkpoint(
      [&blocks, first](const at::Tensor& t) {
        return Nested(blocks, first + 1, blocks[first](t));
      },
      x);
}

void ExpectNestingKeepsTheBits(size_t depth) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < depth; ++i) blocks.emplace_back(4, 8, 0.1);
  const at::Tensor x = at::randn({2, 4}).set_requires_grad(true);
  const auto gradients = [&](Mode mode) {
    const RankGeneratorScope scope(MakeRankGenerator(1, 0, 0));
    if (mode == Mode::kPlain) return Gradients(mode, blocks, x);
    Loss(Nested(blocks, 0, x)).backward();
    Tensors all = ParametersOf(blocks);
    all.push_back(x);
    return TakeGradients(all);
  };
  const Tensors plain = gradients(Mode::kPlain);
  ExpectSameBits(gradients(Mode::kCheckpointed), plain);
}

TEST_F(CheckpointTest, NestingThreeDeepKeepsTheBits) {
  ExpectNestingKeepsTheBits(3);
}

TEST_F(CheckpointTest, NestingAHundredDeepKeepsTheBits) {
  ExpectNestingKeepsTheBits(100);
}

TEST_F(CheckpointTest, ANestedSegmentKeepsNothingOfItsOwn) {
  const std::vector<Block> blocks{Block(8, 16), Block(8, 16), Block(8, 16)};
  const at::Tensor x = at::randn({4, 8}).set_requires_grad(true);
  const SavedBytesScope saved;
  const at::Tensor y = Nested(blocks, 0, x);
  EXPECT_EQ(saved.raw_bytes(), 4 * 8 * 4);
  y.sum().backward();
  EXPECT_EQ(saved.distinct_bytes(), 0);
}

TEST_F(CheckpointTest, ThreeHundredBlocksInARowKeepTheBits) {
  std::vector<Block> blocks;
  for (int i = 0; i < 300; ++i) blocks.emplace_back(4, 8);
  const at::Tensor x = at::randn({2, 4}).set_requires_grad(true);
  const Tensors plain = Gradients(Mode::kPlain, blocks, x);
  ExpectSameBits(Gradients(Mode::kCheckpointed, blocks, x), plain);
}

TEST_F(CheckpointTest, ParametersGetGradientsWhereNoInputRequiresOne) {
  const std::vector<Block> blocks{Block(8, 16)};
  const at::Tensor x = at::randn({4, 8});
  const Tensors plain = Gradients(Mode::kPlain, blocks, x);
  ExpectSameBits(Gradients(Mode::kCheckpointed, blocks, x), plain);
}

TEST_F(CheckpointTest, SeveralInputsAndOutputsOneOfThemUndefined) {
  const at::Tensor a = at::randn({3}).set_requires_grad(true);
  const at::Tensor b = at::randn({3}).set_requires_grad(true);
  const at::Tensor index = at::tensor({2, 0, 1});
  const CheckpointFunction fn = [](const Tensors& in) {
    EXPECT_FALSE(in[3].defined());
    const at::Tensor picked = in[0].index_select(0, in[2]);
    return Tensors{picked * in[1], picked.exp() * 0.1, in[1]};
  };
  const auto run = [&](Mode mode) {
    const Tensors in{a, b, index, at::Tensor()};
    const Tensors out = mode == Mode::kPlain ? fn(in) : Checkpoint(fn, in);
    (out[0] * out[1] + out[2]).sum().backward();
    return TakeGradients({a, b});
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(CheckpointTest, ANumberTimesAZeroDimensionalTensorKeepsTheBits) {
  const at::Tensor x = at::full({}, 0.7f).set_requires_grad(true);
  const Layer layer = [](const at::Tensor& t) { return (t * 0.1) * (t * 0.3); };
  const auto run = [&](Mode mode) {
    Apply(mode, layer, x).backward();
    return TakeGradients({x});
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(CheckpointTest, RunsTheFunctionTwiceAndSaysWhichRunItIs) {
  std::vector<bool> runs;
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  const at::Tensor y = Checkpoint(
      [&](const at::Tensor& t) {
        runs.push_back(IsRecomputing());
        return t.exp().exp();
      },
      x);
  EXPECT_THAT(runs, ::testing::ElementsAre(false));
  y.sum().backward();
  EXPECT_THAT(runs, ::testing::ElementsAre(false, true));
  EXPECT_FALSE(IsRecomputing());
}

TEST_F(CheckpointTest, WithGradientsOffItIsJustTheFunction) {
  const c10::NoGradGuard no_grad;
  const SavedBytesScope saved;
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  const at::Tensor y =
      Checkpoint([](const at::Tensor& t) { return t.exp(); }, x);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(saved.raw_bytes(), 0);
}

TEST_F(CheckpointTest, ARetainedGraphRunsBackwardTwice) {
  const Block block(8, 16, 0.3);
  const at::Tensor x = at::randn({4, 8}).set_requires_grad(true);
  int runs = 0;
  const at::Tensor loss = Loss(Checkpoint(
      [&](const at::Tensor& t) {
        ++runs;
        return block(t);
      },
      x));
  Tensors all = block.parameters;
  all.push_back(x);
  loss.backward({}, /*retain_graph=*/true);
  const Tensors first = TakeGradients(all);
  loss.backward();
  ExpectSameBits(TakeGradients(all), first);
  EXPECT_EQ(runs, 2);
}

TEST_F(CheckpointTest, DroppedPartsOfTheGraphAreNotKept) {
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  const SavedBytesScope saved;
  Tensors out = Checkpoint(
      [](const Tensors& in) {
        return Tensors{in[0].exp(), in[0].sin()};
      },
      Tensors{x});
  out[0].reset();
  out[1].sum().backward({}, /*retain_graph=*/true);
  EXPECT_TRUE(at::equal(x.grad(), x.detach().cos()));
  EXPECT_EQ(saved.distinct_bytes(), 2 * 4);
}

struct OwnException : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST_F(CheckpointTest, AnExceptionInTheSecondRunComesOutOfBackwardAsItself) {
  const Block block(8, 16);
  const at::Tensor x = at::randn({4, 8}).set_requires_grad(true);
  bool throws = true;
  const Layer layer = [&](const at::Tensor& t) {
    const at::Tensor y = block(t);
    if (throws && IsRecomputing()) throw OwnException("second run");
    return y;
  };
  const at::Tensor loss = Loss(Checkpoint(layer, x));
  EXPECT_THROW(loss.backward({}, /*retain_graph=*/true), OwnException);
  EXPECT_FALSE(IsRecomputing());
  TakeGradients(block.parameters);

  throws = false;  // the next backward works, on this graph and on a new one
  loss.backward();
  const Tensors same_graph = TakeGradients(block.parameters);
  Loss(Checkpoint(layer, x)).backward();
  const Tensors new_graph = TakeGradients(block.parameters);
  Loss(block(x)).backward();
  const Tensors plain = TakeGradients(block.parameters);
  ExpectSameBits(same_graph, plain);
  ExpectSameBits(new_graph, plain);
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

TEST_F(CheckpointTest, AnExceptionInAGradientHookInsideASegmentIsItself) {
  const Block block(8, 16);
  const at::Tensor x = at::randn({4, 8});
  const GradientHook hook(block.parameters[0],
                          [] { throw OwnException("hook"); });
  EXPECT_THROW(Loss(Checkpoint(block, x)).backward(), OwnException);
}

std::string BackwardError(const at::Tensor& loss) {
  try {
    loss.backward();
  } catch (const collectives::Error& e) {
    return e.what();
  }
  return "no collectives::Error";
}

at::Tensor DifferentTheSecondTime(const Layer& first, const Layer& second) {
  const at::Tensor x = at::ones({2, 3}).set_requires_grad(true);
  return Checkpoint(
             [=](const at::Tensor& t) {
               return IsRecomputing() ? second(t) : first(t);
             },
             x)
      .sum();
}

TEST_F(CheckpointTest, ADifferentShapeInTheSecondRunIsAnErrorThatNamesBoth) {
  const std::string error = BackwardError(DifferentTheSecondTime(
      [](const at::Tensor& t) { return t.exp().exp(); },
      [](const at::Tensor& t) { return t.exp().narrow(1, 0, 2).exp(); }));
  EXPECT_THAT(error, HasSubstr("saved tensor 1"));
  EXPECT_THAT(error, HasSubstr("[2, 2] Float"));
  EXPECT_THAT(error, HasSubstr("[2, 3] Float"));
}

TEST_F(CheckpointTest, ADifferentDtypeInTheSecondRunIsAnErrorThatNamesBoth) {
  const std::string error = BackwardError(DifferentTheSecondTime(
      [](const at::Tensor& t) { return t.exp().exp(); },
      [](const at::Tensor& t) { return t.exp().to(at::kDouble).exp(); }));
  EXPECT_THAT(error, HasSubstr("saved tensor 1"));
  EXPECT_THAT(error, HasSubstr("[2, 3] Double"));
  EXPECT_THAT(error, HasSubstr("[2, 3] Float"));
}

TEST_F(CheckpointTest, ADifferentNumberInTheSecondRunIsAnError) {
  const Layer once = [](const at::Tensor& t) { return t.exp(); };
  const Layer twice = [](const at::Tensor& t) { return t.exp().exp(); };
  EXPECT_THAT(BackwardError(DifferentTheSecondTime(twice, once)),
              HasSubstr("saved 1 tensors, the forward saved 2"));
  EXPECT_THAT(BackwardError(DifferentTheSecondTime(once, twice)),
              HasSubstr("more tensors than the 1"));
}

TEST_F(CheckpointTest, BackwardInsideTheFunctionIsAClearError) {
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  const Layer layer = [](const at::Tensor& t) {
    const at::Tensor y = t.exp();
    y.sum().backward({}, /*retain_graph=*/true);
    return y;
  };
  try {
    Checkpoint(layer, x);
    FAIL() << "not refused";
  } catch (const collectives::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("not supported"));
  }
}

void ExpectInPlaceError(const at::Tensor& loss) {
  try {
    loss.backward();
    FAIL() << "not detected";
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("inplace operation"));
  }
}

TEST_F(CheckpointTest, AnInPlaceChangeOfTheInputIsDetected) {
  const at::Tensor w = at::ones({4}).set_requires_grad(true);
  const at::Tensor x = w * 1;
  // sin of x + 1: no saved tensor is x itself.
  const at::Tensor y =
      Checkpoint([](const at::Tensor& t) { return (t + 1).sin(); }, x);
  x.add_(1);
  ExpectInPlaceError(y.sum());
}

TEST_F(CheckpointTest, AnInPlaceChangeOfAParameterIsDetected) {
  const Block block(8, 16);
  const at::Tensor loss = Loss(Checkpoint(block, at::randn({4, 8})));
  {
    const c10::NoGradGuard no_grad;
    block.parameters[2].add_(1);
  }
  ExpectInPlaceError(loss);
}

TEST_F(CheckpointTest, EightThreadsAtOnceEachKeepTheirBits) {
  constexpr int kThreads = 8;
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&wrong = wrong[rank], rank] {
      const RankGeneratorScope scope(MakeRankGenerator(5, 0, rank));
      const std::vector<Block> blocks{Block(8, 16, 0.3), Block(8, 16, 0.3)};
      const at::Tensor x = at::randn({rank + 1, 8}).set_requires_grad(true);
      for (int i = 0; i < 20; ++i) {
        Tensors gradients[2];
        for (const Mode mode : {Mode::kPlain, Mode::kCheckpointed}) {
          const RankGeneratorScope step(MakeRankGenerator(6, i, rank));
          gradients[static_cast<int>(mode)] = Gradients(mode, blocks, x);
        }
        for (size_t g = 0; g < gradients[0].size(); ++g) {
          wrong += !at::equal(gradients[0][g], gradients[1][g]);
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(wrong, Each(0));
}

TEST_F(CheckpointTest, BackwardMayRunOnAnotherThread) {
  const std::vector<Block> blocks{Block(8, 16, 0.3)};
  const at::Tensor x = at::randn({4, 8});
  const auto run = [&](Mode mode) {
    const RankGeneratorScope scope(MakeRankGenerator(1, 2, 3));
    const at::Tensor loss = Loss(Apply(mode, blocks[0], x));
    std::thread([&] { loss.backward(); }).join();
    return TakeGradients(ParametersOf(blocks));
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

}  // namespace
}  // namespace trainsys
