#include "trainsys/recompute/keep_in_segment.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "collectives/errors.h"
#include "tests/recompute/segments.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/recompute/checkpoint.h"

namespace trainsys {
namespace {

using ::testing::HasSubstr;

class KeepInSegmentTest : public CheckpointTest {};

TEST_F(KeepInSegmentTest, OutsideSegmentsItIsJustTheFunction) {
  EXPECT_EQ(KeepInSegment([] { return 3; }), 3);
}

// sin(exp(t) * kept(exp(t))), and how often the kept part ran.
struct KeepingLayer {
  at::Tensor operator()(const at::Tensor& t) {
    const at::Tensor h = t.exp();
    const at::Tensor kept = KeepInSegment([&] {
      ++runs;
      return h.sin().exp();
    });
    return (h * kept).sin();
  }
  int& runs;
};

TEST_F(KeepInSegmentTest, TheFunctionRunsOnceAndTheBitsStay) {
  const at::Tensor x = at::randn({4}).set_requires_grad(true);
  const auto run = [&](Mode mode) {
    int runs = 0;
    const KeepingLayer layer{runs};
    Apply(mode, layer, Apply(mode, layer, x)).sum().backward();
    EXPECT_EQ(runs, 2);
    return TakeGradients({x});
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(KeepInSegmentTest, NestedSegmentsAllGetTheOneResult) {
  const at::Tensor x = at::randn({4}).set_requires_grad(true);
  const auto run = [&](Mode mode, int depth) {
    int runs = 0;
    Layer layer = KeepingLayer{runs};
    for (int i = 0; i < depth; ++i) {
      layer = [mode, layer, &runs](const at::Tensor& t) {
        const at::Tensor y = Apply(mode, layer, t.sin());
        return KeepingLayer{runs}(y).exp();
      };
    }
    Apply(mode, layer, x).sum().backward();
    EXPECT_EQ(runs, 1 + depth);
    return TakeGradients({x});
  };
  for (int depth = 1; depth <= 3; ++depth) {
    ExpectSameBits(run(Mode::kCheckpointed, depth), run(Mode::kPlain, depth));
  }
}

TEST_F(KeepInSegmentTest, TheResultIsASavedTensorOfTheEnclosingScopes) {
  const at::Tensor x = at::randn({4}).set_requires_grad(true);
  const auto layer = [](const at::Tensor& t) {
    const at::Tensor h = t.exp();
    return (h * KeepInSegment([&] { return h.detach().sin(); })).sin();
  };
  const SavedBytesScope saved;
  const at::Tensor y = Checkpoint(layer, x);
  EXPECT_EQ(saved.distinct_bytes(), 2 * 4 * 4);  // the input and the result
  y.sum().backward();
  EXPECT_EQ(saved.distinct_bytes(), 0);
  // Nested, it is dropped by the segment around it, which keeps it once.
  const at::Tensor z = Checkpoint(
      [&](const at::Tensor& t) { return Checkpoint(layer, t.sin()); }, x);
  EXPECT_EQ(saved.distinct_bytes(), 2 * 4 * 4);
}

TEST_F(KeepInSegmentTest, AnyResultIsKeptWithItsNumbers) {
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  std::vector<double> numbers;
  const at::Tensor y = Checkpoint(
      [&](const at::Tensor& t) {
        const auto [kept, number, none] = KeepInSegment(
            [&] { return std::tuple(t.detach() * 2, 2.5, at::Tensor()); });
        EXPECT_FALSE(none.defined());
        numbers.push_back(number);
        return (t * kept * number).exp();
      },
      x);
  y.sum().backward();
  EXPECT_EQ(numbers, std::vector<double>(2, 2.5));
  EXPECT_TRUE(at::equal(x.grad(), (x.detach() * 5).exp() * 5));
}

TEST_F(KeepInSegmentTest, NumbersDrawnBeforeInsideAndAfterRepeat) {
  const at::Tensor x = at::randn({4}).set_requires_grad(true);
  const Layer layer = [](const at::Tensor& t) {
    const at::Tensor before = at::rand({4});
    const at::Tensor kept = KeepInSegment([] { return at::rand({5}); });
    return (t * before * at::rand({4}) * kept.narrow(0, 0, 4)).exp();
  };
  const Layer only_inside = [](const at::Tensor& t) {
    return (t * KeepInSegment([] { return at::rand({4}); })).exp();
  };
  const auto run = [&](Mode mode) {
    const RankGeneratorScope scope(MakeRankGenerator(1, 2, 3));
    const Layer nested = [&](const at::Tensor& t) {
      return Apply(mode, only_inside, Apply(mode, layer, t)).sin();
    };
    const at::Tensor y = Apply(mode, layer, Apply(mode, nested, x));
    at::rand({3});
    y.sum().backward();
    Tensors result = TakeGradients({x});
    result.push_back(at::rand({4}));
    return result;
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(KeepInSegmentTest, ASegmentInsideTheFunctionIsLikeOneOutside) {
  const at::Tensor x = at::randn({4}).set_requires_grad(true);
  const auto run = [&](Mode mode) {
    int runs = 0;
    const Layer layer = [&](const at::Tensor& t) {
      const at::Tensor kept = KeepInSegment(
          [&] { return Apply(mode, KeepingLayer{runs}, t.exp()); });
      return (kept * t).exp();
    };
    Apply(mode, layer, x).sum().backward();
    EXPECT_EQ(runs, 1);
    return TakeGradients({x});
  };
  ExpectSameBits(run(Mode::kCheckpointed), run(Mode::kPlain));
}

TEST_F(KeepInSegmentTest, AResultChangedInPlaceIsDetected) {
  const at::Tensor x = at::ones({4}).set_requires_grad(true);
  const at::Tensor y = Checkpoint(
      [](const at::Tensor& t) {
        at::Tensor kept = KeepInSegment([&] { return t.detach() * 2; });
        return (t.exp() * kept.add_(1)).exp();
      },
      x);
  try {
    y.sum().backward();
    FAIL() << "not detected";
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("inplace operation"));
  }
}

std::string ErrorOfCalls(int in_forward, int in_recomputation) {
  const at::Tensor x = at::ones({4}).set_requires_grad(true);
  const at::Tensor y = Checkpoint(
      {.label = "uneven"},
      [&](const at::Tensor& t) {
        const int calls = IsRecomputing() ? in_recomputation : in_forward;
        for (int i = 0; i < calls; ++i) KeepInSegment([] { return 1; });
        return t.exp();
      },
      x);
  try {
    y.sum().backward();
  } catch (const collectives::Error& e) {
    return e.what();
  }
  return "no collectives::Error";
}

TEST_F(KeepInSegmentTest, OtherCallsInTheSecondRunAreAnError) {
  EXPECT_THAT(ErrorOfCalls(1, 2), HasSubstr("'uneven'"));
  EXPECT_THAT(ErrorOfCalls(1, 2), HasSubstr("more often than the 1 times"));
  EXPECT_THAT(ErrorOfCalls(2, 1), HasSubstr("1 times, the forward 2 times"));
  EXPECT_EQ(ErrorOfCalls(2, 2), "no collectives::Error");
}

}  // namespace
}  // namespace trainsys
