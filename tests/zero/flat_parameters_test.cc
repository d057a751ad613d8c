#include "trainsys/zero/flat_parameters.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/errors.h"
#include "trainsys/autograd/gradient_hook.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

// Tensors of different numbers: 0, 1, ..., counted over all of them.
Tensors MakeParameters(const std::vector<std::vector<int64_t>>& shapes) {
  Tensors parameters;
  int64_t next = 0;
  for (const auto& shape : shapes) {
    const at::Tensor p = at::zeros(shape);
    p.copy_(at::arange(next, next + p.numel(), at::kFloat).view(shape));
    next += p.numel();
    parameters.push_back(p.set_requires_grad(true));
  }
  return parameters;
}

TEST(FlatParametersTest, ValuesAndShapesStay) {
  const Tensors parameters = MakeParameters({{3, 5}, {}, {0, 8}, {17}});
  const Tensors before = Snapshot(parameters);
  const FlatParameters flat(parameters);
  EXPECT_TRUE(EqualBits(parameters, before));
  EXPECT_EQ(flat.elems(), 16 + 16 + 0 + 32);
  EXPECT_EQ(flat.flat().numel(), flat.elems());
  EXPECT_EQ(flat.elem_bytes(), 4);
}

TEST(FlatParametersTest, ParametersReferToTheBufferEachOn64Bytes) {
  const Tensors parameters = MakeParameters({{3, 5}, {17}, {2}});
  const FlatParameters flat(parameters);
  flat.flat().fill_(-1);
  for (const at::Tensor& p : parameters) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p.data_ptr()) % 64, 0);
    EXPECT_TRUE(EqualBits({p}, {at::full(p.sizes(), -1.0)}));
  }
}

TEST(FlatParametersTest, AParameterWithStridesBecomesContiguous) {
  const at::Tensor p =
      at::arange(12, at::kFloat).view({3, 4}).t().set_requires_grad(true);
  const Tensors before = Snapshot({p});
  const FlatParameters flat({p});
  EXPECT_TRUE(p.is_contiguous());
  EXPECT_TRUE(EqualBits({p}, before));
}

TEST(FlatParametersTest, GradientsAndHooksSurvive) {
  const at::Tensor p = MakeParameters({{4}})[0];
  p.mutable_grad() = at::full({4}, 2.0);
  const void* place = p.grad().data_ptr();
  int calls = 0;
  const GradientHook hook(p, [&] { ++calls; });
  const FlatParameters flat({p});
  EXPECT_EQ(p.grad().data_ptr(), place);
  p.mul(3).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(p.grad().data_ptr(), place);
  EXPECT_TRUE(EqualBits({p.grad()}, {at::full({4}, 5.0)}));
}

void ExpectPiecesCoverEachElementOnce(const FlatParameters& flat, int ranks) {
  std::vector<int64_t> covered(flat.parameters().size(), 0);
  for (const Shard& shard :
       PlanShards(flat.elems(), flat.elem_bytes(), ranks)) {
    int64_t end = 0;
    for (const FlatParameters::Piece& piece : flat.PiecesOf(shard)) {
      EXPECT_EQ(piece.begin, covered[piece.parameter]);
      covered[piece.parameter] += piece.elems;
      EXPECT_GE(piece.in_shard, end);
      end = piece.in_shard + piece.elems;
      EXPECT_LE(end, shard.elems);
      const float* in_flat =
          flat.flat().data_ptr<float>() + shard.begin + piece.in_shard;
      EXPECT_EQ(in_flat, flat.parameters()[piece.parameter].data_ptr<float>() +
                             piece.begin);
    }
  }
  for (size_t p = 0; p < covered.size(); ++p) {
    EXPECT_EQ(covered[p], flat.parameters()[p].numel());
  }
}

TEST(FlatParametersTest, ShardsPiecesCoverEachElementOnceWhateverTheRanks) {
  const FlatParameters flat(
      MakeParameters({{5}, {7}, {11}, {0, 4}, {101}, {}, {16}, {33, 3}}));
  for (int ranks : {1, 2, 3, 4, 5, 7, 8, 64}) {
    SCOPED_TRACE(ranks);
    ExpectPiecesCoverEachElementOnce(flat, ranks);
  }
}

std::string Refusal(const Tensors& parameters) {
  try {
    const FlatParameters flat(parameters);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "not refused";
}

TEST(FlatParametersTest, AnEmptyListIsRefused) {
  EXPECT_THAT(Refusal({}), HasSubstr("no parameters"));
}

TEST(FlatParametersTest, AParameterListedTwiceIsRefused) {
  const at::Tensor p = at::zeros({2});
  EXPECT_THAT(Refusal({p, at::zeros({2}), p}), HasSubstr("listed twice"));
}

TEST(FlatParametersTest, SeveralTypesAreRefused) {
  EXPECT_THAT(Refusal({at::zeros({2}), at::zeros({2}, at::kDouble)}),
              HasSubstr("several dtypes"));
}

TEST(FlatParametersTest, OtherThanFloatAndDoubleAreRefusedByName) {
  EXPECT_THAT(Refusal({at::zeros({2}, at::kLong)}), HasSubstr("Long"));
  EXPECT_THAT(Refusal({at::zeros({2}, at::kHalf)}), HasSubstr("Half"));
}

TEST(FlatParametersTest, AParameterThatWasGivenOtherDataIsTakenBackWithIt) {
  at::Tensor a = at::zeros({2}), b = at::zeros({3});
  FlatParameters flat({a, b});
  const void* const place = b.data_ptr();
  b.set_data(at::full({3}, 7.0));
  EXPECT_NE(b.data_ptr(), place);
  flat.TakeBack();
  EXPECT_EQ(b.data_ptr(), place);
  EXPECT_TRUE(EqualBits({b}, {at::full({3}, 7.0)}));
  EXPECT_EQ(flat.flat()[16].item<float>(), 7);

  b.set_data(at::full({4}, 7.0));
  EXPECT_THROW(flat.TakeBack(), collectives::InvalidArgument);
  b.set_data(at::full({3}, 7.0, at::kDouble));
  EXPECT_THROW(flat.TakeBack(), collectives::InvalidArgument);
}

}  // namespace
}  // namespace trainsys
