// Tensors changed in place: refused or right, never silently wrong.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/errors.h"
#include "tests/recompute/segments.h"
#include "trainsys/recompute/checkpoint.h"

namespace trainsys {
namespace {

using ::testing::HasSubstr;

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

TEST_F(CheckpointTest, AnInPlaceChangeThroughAViewOfTheInputIsDetected) {
  const at::Tensor w = at::ones({4}).set_requires_grad(true);
  const at::Tensor x = w * 1;
  const at::Tensor y =
      Checkpoint([](const at::Tensor& t) { return (t + 1).sin(); }, x);
  x.narrow(0, 1, 2).mul_(2);
  ExpectInPlaceError(y.sum());
}

TEST_F(CheckpointTest, TheFunctionsOwnChangeOfItsInputIsDetected) {
  const Layer layer = [](const at::Tensor& t) { return t.add_(1).sin(); };
  const at::Tensor w = at::ones({4}).set_requires_grad(true);
  ExpectInPlaceError(Checkpoint(layer, w * 1).sum());
  // Also where the input needs no gradient, and a parameter does.
  const Layer scaled = [&](const at::Tensor& t) { return t.add_(1).sin() * w; };
  ExpectInPlaceError(Checkpoint(scaled, at::ones({4})).sum());
}

TEST_F(CheckpointTest, TheFunctionsOwnChangeOfALeafIsRefusedAtOnce) {
  const at::Tensor w = at::ones({4}).set_requires_grad(true);
  EXPECT_THROW(
      Checkpoint([](const at::Tensor& t) { return t.add_(1).sin(); }, w),
      c10::Error);
}

TEST_F(CheckpointTest, AChangeOfAnInputThatNobodyNeedsAgainIsRight) {
  const at::Tensor w = at::ones({4}).set_requires_grad(true);
  const at::Tensor x = w * 1;
  Checkpoint([](const at::Tensor& t) { return t.add_(1).neg(); }, x)
      .sum()
      .backward();
  EXPECT_TRUE(at::equal(w.grad(), -at::ones({4})));
}

TEST_F(CheckpointTest, AChangeOfAnOutputThatWasSavedIsDetected) {
  const at::Tensor x = at::ones({4}).set_requires_grad(true);
  const at::Tensor y =
      Checkpoint([](const at::Tensor& t) { return t.exp(); }, x);
  y.add_(1);  // the gradient of exp is exp
  ExpectInPlaceError(y.sum());
}

TEST_F(CheckpointTest, AChangeOfAnOutputThatWasNotSavedIsRight) {
  const at::Tensor x = at::ones({4}).set_requires_grad(true);
  const at::Tensor y =
      Checkpoint([](const at::Tensor& t) { return t.sin(); }, x);
  y.mul_(2);
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), x.detach().cos() * 2));
}

TEST_F(CheckpointTest, AChangeOfAnOutputThatIsAnInputIsDetected) {
  const at::Tensor w = at::ones({4}).set_requires_grad(true);
  const at::Tensor x = w * 1;
  const Tensors out = Checkpoint(
      [](const Tensors& in) {
        return Tensors{in[0], (in[0] + 1).sin()};
      },
      Tensors{x});
  out[0].add_(1);
  ExpectInPlaceError((out[0] + out[1]).sum());
}

// What only the second run would read has no version that is watched, but its
// values give it away.
TEST_F(CheckpointTest, AChangeOfACapturedTensorIsFoundByTheCheckOfValues) {
  const at::Tensor x = at::ones({4}).set_requires_grad(true);
  const at::Tensor shift = at::ones({4});
  const at::Tensor y = Checkpoint(
      {.label = "shifted", .check = SecondRunCheck::kValues},
      [&](const at::Tensor& t) { return (t + shift).sin(); }, x);
  shift.add_(1);
  EXPECT_THROW(y.sum().backward(), collectives::Error);
}

// An operation may write into a tensor after autograd has saved it.
at::Tensor TimesFilledLate(const at::Tensor& t, void (*fill)(at::Tensor&)) {
  at::Tensor factor = at::zeros({4});
  const at::Tensor y = t * factor;
  fill(factor);
  return y;
}

TEST_F(CheckpointTest, AValueWrittenAfterItWasSavedIsTheFinalOneOrDetected) {
  const at::Tensor x = at::ones({4}).set_requires_grad(true);
  const auto run = [&](void (*fill)(at::Tensor&)) {
    return Checkpoint(
               [fill](const at::Tensor& t) { return TimesFilledLate(t, fill); },
               x)
        .sum();
  };
  run([](at::Tensor& t) { t.data_ptr<float>()[2] = 3; }).backward();
  EXPECT_TRUE(at::equal(x.grad(), at::tensor({0.f, 0.f, 3.f, 0.f})));
  ExpectInPlaceError(run([](at::Tensor& t) { t.fill_(3); }));
}

// Plainly the second addition never happens.
TEST_F(CheckpointTest, AChangeByTheSecondRunItselfIsDetected) {
  const at::Tensor x = at::ones({4}).set_requires_grad(true);
  const at::Tensor state = at::zeros({4});
  const at::Tensor y = Checkpoint(
      [&state](const at::Tensor& t) {
        state.add_(1);
        return t * state;
      },
      x);
  ExpectInPlaceError(y.sum());
}

}  // namespace
}  // namespace trainsys
