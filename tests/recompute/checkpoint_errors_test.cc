// What comes out of backward where the second run cannot be the first again.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/errors.h"
#include "tests/recompute/segments.h"
#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/recompute/checkpoint.h"

namespace trainsys {
namespace {

using ::testing::HasSubstr;

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

at::Tensor TimesACounter(SecondRunCheck check, double& counter) {
  const at::Tensor x = at::ones({2, 3}).set_requires_grad(true);
  return Checkpoint(
             {.label = "block 3", .check = check},
             [&](const at::Tensor& t) {
               counter += 1;
               return (t.exp() * counter).exp();
             },
             x)
      .sum();
}

TEST_F(CheckpointTest, OtherValuesAreAnErrorThatNamesSegmentAndTensorIfAsked) {
  double counter = 0;
  const std::string error =
      BackwardError(TimesACounter(SecondRunCheck::kValues, counter));
  EXPECT_EQ(counter, 2);
  EXPECT_THAT(error, HasSubstr("Checkpoint 'block 3'"));
  EXPECT_THAT(error, HasSubstr("[2, 3] Float with the bits"));
  EXPECT_THAT(error, HasSubstr("in recomputation and was"));
}

TEST_F(CheckpointTest, OtherValuesOfTheSameShapesPassUnlessAsked) {
  double counter = 0;
  EXPECT_EQ(BackwardError(TimesACounter(SecondRunCheck::kShapes, counter)),
            "no collectives::Error");
}

TEST_F(CheckpointTest, EqualValuesPassTheCheckOfValues) {
  const Block block(8, 16, 0.3);
  const at::Tensor x = at::randn({8, 4}).t().requires_grad_();  // strided
  Loss(Checkpoint({.label = "", .check = SecondRunCheck::kValues}, block, x))
      .backward();
  EXPECT_TRUE(x.grad().defined());
}

// Of another graph, not of the segment that the function is in.
TEST_F(CheckpointTest, BackwardOfAnotherSegmentInsideTheFunctionWorks) {
  const at::Tensor w = at::ones({3}).set_requires_grad(true);
  const at::Tensor x = at::ones({3}).set_requires_grad(true);
  const Layer inner = [](const at::Tensor& t) { return t.exp().sin(); };
  const auto gradient = [&](Mode mode) {
    const at::Tensor other = Apply(mode, inner, w).sum();
    const Layer outer = [&](const at::Tensor& t) {
      other.backward({}, /*retain_graph=*/true);
      return t.cos() * TakeGradients({w})[0];
    };
    Apply(mode, outer, x).sum().backward();
    return TakeGradients({x});
  };
  ExpectSameBits(gradient(Mode::kCheckpointed), gradient(Mode::kPlain));
}

}  // namespace
}  // namespace trainsys
