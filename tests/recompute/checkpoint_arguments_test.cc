#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/recompute/segments.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/recompute/checkpoint.h"

namespace elsewhere {

// A caller's type, which says where its tensors are.
struct Batch {
  at::Tensor values;
  std::vector<at::Tensor> masks;
  double scale = 1;
};

void ForEachTensor(Batch& batch, const trainsys::TensorVisitor& visit) {
  visit(batch.values);
  trainsys::VisitTensors(batch.masks, visit);
}

}  // namespace elsewhere

namespace trainsys {
namespace {

using elsewhere::Batch;

TEST_F(CheckpointTest, SeveralInputsAndOutputsOneOfThemUndefined) {
  const at::Tensor a = at::randn({3}).set_requires_grad(true);
  const at::Tensor b = at::randn({3}).set_requires_grad(true);
  const at::Tensor index = at::tensor({2, 0, 1});
  const auto fn = [](const Tensors& in) {
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

at::Tensor Leaf() { return at::randn({3}).set_requires_grad(true); }

// Runs fn(args...) plainly and checkpointed, and compares the gradients.
template <typename Fn, typename... Args>
void ExpectSameGradients(const Tensors& leaves, const Fn& fn,
                         const Args&... args) {
  fn(args...).sum().backward();
  const Tensors plain = TakeGradients(leaves);
  Checkpoint(fn, args...).sum().backward();
  ExpectSameBits(TakeGradients(leaves), plain);
}

TEST_F(CheckpointTest, TensorsInsideAnyArgumentAreInputs) {
  const Tensors p{Leaf(), Leaf(), Leaf(), Leaf(), Leaf(), Leaf(), Leaf()};
  const auto fn =
      [](const at::Tensor& a, const std::optional<at::Tensor>& b,
         const std::vector<at::Tensor>& c, const std::tuple<at::Tensor, int>& d,
         const std::array<std::pair<at::Tensor, bool>, 1>& e, double scale) {
        const at::Tensor y = (a * *b).exp() * (c[0] * c[1]).exp();
        return (y * (std::get<0>(d) * std::get<1>(d)).sin()).exp() *
               e[0].first.exp() * scale;
      };
  const std::optional<at::Tensor> b = p[1];
  const Tensors c{p[2], p[3]};
  const std::tuple<at::Tensor, int> d{p[4], 2};
  const std::array<std::pair<at::Tensor, bool>, 1> e{{{p[5], true}}};
  ExpectSameGradients({p.begin(), p.begin() + 6}, fn, p[0], b, c, d, e, 0.5);

  const SavedBytesScope saved;
  const at::Tensor y = Checkpoint(fn, p[0], b, c, d, e, 0.5);
  EXPECT_EQ(saved.raw_bytes(), 6 * 3 * 4);
}

TEST_F(CheckpointTest, TensorsInsideACallersStructAreInputs) {
  const at::Tensor a = Leaf(), b = Leaf();
  const auto fn = [](const std::vector<Batch>& batches) {
    const Batch& batch = batches[0];
    return (batch.values * batch.masks[0]).exp() * batch.scale;
  };
  const std::vector<Batch> batches{{a, {b}, 0.5}};
  ExpectSameGradients({a, b}, fn, batches);
  const SavedBytesScope saved;
  const at::Tensor y = Checkpoint(fn, batches);
  EXPECT_EQ(saved.raw_bytes(), 2 * 3 * 4);
}

// The segment keeps no tensor but as a saved one, which outer segments drop.
TEST_F(CheckpointTest, ArgumentsAreNotKeptAliveByTheFunction) {
  const at::Tensor x = Leaf();
  const auto inner = [](const Tensors& in) { return in[0].exp(); };
  const auto outer = [&](const at::Tensor& t) {
    return Checkpoint(inner, Tensors{t.sin()});
  };
  const SavedBytesScope saved;
  const at::Tensor y = Checkpoint(outer, x);
  EXPECT_EQ(saved.distinct_bytes(), 3 * 4);
  y.sum().backward();
  EXPECT_EQ(saved.distinct_bytes(), 0);
}

TEST_F(CheckpointTest, ParametersGetGradientsWithoutAnyArgument) {
  const at::Tensor w = Leaf();
  ExpectSameGradients({w}, [&] { return w.exp().exp(); });
}

TEST_F(CheckpointTest, UndefinedAndAbsentTensorsAreHandedOn) {
  const at::Tensor x = Leaf(), captured = Leaf();
  const auto fn = [&](const at::Tensor& t, const at::Tensor& none,
                      const std::optional<at::Tensor>& absent) {
    EXPECT_FALSE(none.defined());
    EXPECT_FALSE(absent.has_value());
    return (t * captured).exp();
  };
  ExpectSameGradients({x, captured}, fn, x, at::Tensor(),
                      std::optional<at::Tensor>());
}

TEST_F(CheckpointTest, OtherArgumentsAreKeptAsTheyWere) {
  const at::Tensor x = Leaf();
  std::string text = "two";
  double scale = 2;
  const at::Tensor y = Checkpoint(
      [](const at::Tensor& t, const std::string& s, const double& factor) {
        EXPECT_EQ(s, "two");
        return (t * factor).exp();
      },
      x, text, scale);
  text = "three";
  scale = 3;
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), (x.detach() * 2).exp() * 2));
}

TEST_F(CheckpointTest, ATupleOfAnythingComesBackAsItIs) {
  const at::Tensor x = Leaf();
  const auto fn = [](const at::Tensor& t) {
    const at::Tensor y = t.exp();
    return std::tuple(y, at::Tensor(), 3, true, y.argmax(), y.detach());
  };
  const auto out = Checkpoint(fn, x);
  static_assert(std::is_same_v<decltype(fn(x)), std::decay_t<decltype(out)>>);
  EXPECT_FALSE(std::get<1>(out).defined());
  EXPECT_EQ(std::get<2>(out), 3);
  EXPECT_TRUE(std::get<3>(out));
  EXPECT_FALSE(std::get<4>(out).requires_grad());
  EXPECT_FALSE(std::get<5>(out).requires_grad());
  std::get<0>(out).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), x.detach().exp()));
}

TEST_F(CheckpointTest, TensorsInsideAReturnedStructKeepTheirGraph) {
  const at::Tensor x = Leaf();
  const Batch out = Checkpoint(
      [](const at::Tensor& t) {
        return Batch{t.exp(), {t.sin()}, 2};
      },
      x);
  EXPECT_EQ(out.scale, 2);
  (out.values + out.masks[0]).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), x.detach().cos() + x.detach().exp()));
}

TEST_F(CheckpointTest, AFunctionMayReturnANumberOrNothing) {
  const at::Tensor x = Leaf();
  at::Tensor y;
  EXPECT_EQ(Checkpoint([](const at::Tensor& t) { return t.numel(); }, x), 3);
  Checkpoint(
      [&](const at::Tensor& t) {
        if (!IsRecomputing()) y = t.exp();
        if (IsRecomputing()) t.exp();
      },
      x);
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), x.detach().exp()));
}

TEST_F(CheckpointTest, AFunctionNeedNotBeCopyable) {
  const at::Tensor x = Leaf();
  auto factor = std::make_unique<double>(2);
  const at::Tensor y =
      Checkpoint([factor = std::move(factor)](
                     const at::Tensor& t) { return (t * *factor).exp(); },
                 x);
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), (x.detach() * 2).exp() * 2));
}

TEST_F(CheckpointTest, APathIsAnArgumentLikeAnyOther) {
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  const at::Tensor y = Checkpoint(
      [](const at::Tensor& t, const std::filesystem::path& path) {
        return t * static_cast<double>(path.string().size());
      },
      x, std::filesystem::path("a/bc"));
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 4.0)));
}

TEST_F(CheckpointTest, AFunctionThatReturnsAReferenceGivesAValue) {
  struct Doubles {
    at::Tensor result;
    const at::Tensor& operator()(const at::Tensor& t) { return result = t * 2; }
  };
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  const auto y = Checkpoint(Doubles{}, x);
  static_assert(!std::is_reference_v<decltype(Checkpoint(Doubles{}, x))>);
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({2}, 2.0)));
}

}  // namespace
}  // namespace trainsys
