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
#include "trainsys/tensor/tensor_memory.h"

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

FlatParameters MakeFlat(const Tensors& parameters) {
  return {parameters, PlanShards(BytesOfEach(parameters), 1, Partition::kFlat)};
}

TEST(FlatParametersTest, ValuesAndShapesStay) {
  const Tensors parameters = MakeParameters({{3, 5}, {}, {0, 8}, {17}});
  const Tensors before = Snapshot(parameters);
  const FlatParameters flat = MakeFlat(parameters);
  EXPECT_TRUE(EqualBits(parameters, before));
  EXPECT_EQ(flat.flat().numel(), 4 * (16 + 16 + 0 + 32));
}

TEST(FlatParametersTest, ParametersReferToTheBufferEachOn64Bytes) {
  const Tensors parameters = MakeParameters({{3, 5}, {17}, {2}});
  const FlatParameters flat = MakeFlat(parameters);
  AliasOfBytes(flat.flat(), 0, at::kFloat, {64}).fill_(-1);
  for (const at::Tensor& p : parameters) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p.data_ptr()) % 64, 0);
    EXPECT_TRUE(EqualBits({p}, {at::full(p.sizes(), -1.0)}));
  }
}

TEST(FlatParametersTest, AParameterWithStridesBecomesContiguous) {
  const at::Tensor p =
      at::arange(12, at::kFloat).view({3, 4}).t().set_requires_grad(true);
  const Tensors before = Snapshot({p});
  const FlatParameters flat = MakeFlat({p});
  EXPECT_TRUE(p.is_contiguous());
  EXPECT_TRUE(EqualBits({p}, before));
}

TEST(FlatParametersTest, GradientsAndHooksSurvive) {
  const at::Tensor p = MakeParameters({{4}})[0];
  p.mutable_grad() = at::full({4}, 2.0);
  const void* place = p.grad().data_ptr();
  int calls = 0;
  const GradientHook hook(p, [&] { ++calls; });
  const FlatParameters flat = MakeFlat({p});
  EXPECT_EQ(p.grad().data_ptr(), place);
  p.mul(3).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(p.grad().data_ptr(), place);
  EXPECT_TRUE(EqualBits({p.grad()}, {at::full({4}, 5.0)}));
}

// Where the plan has them, whatever the cut: float by float.
TEST(FlatParametersTest, EveryPieceOfEveryShardIsPartOfItsParameter) {
  for (Partition partition :
       {Partition::kFlat, Partition::kByTensor, Partition::kBalanced}) {
    for (int ranks : {1, 2, 3, 8, 64}) {
      const Tensors parameters =
          MakeParameters({{5}, {7}, {11}, {0, 4}, {101}, {}, {16}, {33, 3}});
      const FlatParameters flat(
          parameters, PlanShards(BytesOfEach(parameters), ranks, partition));
      for (int rank = 0; rank < ranks; ++rank) {
        const int64_t begin =
            flat.plan().shards[static_cast<size_t>(rank)].begin;
        for (const ShardPiece& piece : flat.plan().PiecesOf(rank)) {
          EXPECT_EQ(flat.Part(begin + piece.in_shard, piece.bytes).data,
                    static_cast<char*>(parameters[piece.tensor].data_ptr()) +
                        piece.begin);
        }
      }
    }
  }
}

std::string Refusal(const Tensors& parameters) {
  try {
    const FlatParameters flat = MakeFlat(parameters);
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

TEST(FlatParametersTest, EachKeepsItsDType) {
  const at::Tensor f = at::full({3}, 1.5), d = at::full({3}, 2.5, at::kDouble);
  const FlatParameters flat = MakeFlat({f, d});
  EXPECT_EQ(flat.flat().numel(), 128);
  EXPECT_TRUE(
      EqualBits({f, d}, {at::full({3}, 1.5), at::full({3}, 2.5, at::kDouble)}));
  EXPECT_EQ(static_cast<char*>(d.data_ptr()),
            static_cast<char*>(f.data_ptr()) + 64);
}

TEST(FlatParametersTest, OtherThanFloatAndDoubleAreRefusedByName) {
  EXPECT_THAT(Refusal({at::zeros({2}, at::kLong)}), HasSubstr("Long"));
  EXPECT_THAT(Refusal({at::zeros({2}, at::kHalf)}), HasSubstr("Half"));
}

TEST(FlatParametersTest, AParameterThatWasGivenOtherDataIsTakenBackWithIt) {
  at::Tensor a = at::zeros({2}), b = at::zeros({3});
  FlatParameters flat = MakeFlat({a, b});
  const void* const place = b.data_ptr();
  b.set_data(at::full({3}, 7.0));
  EXPECT_NE(b.data_ptr(), place);
  flat.TakeBack();
  EXPECT_EQ(b.data_ptr(), place);
  EXPECT_TRUE(EqualBits({b}, {at::full({3}, 7.0)}));
  EXPECT_EQ(flat.Part(64, 4).data, place);

  // The same memory in another order is other values.
  at::Tensor square = at::arange(4, at::kFloat).view({2, 2});
  FlatParameters of_square = MakeFlat({square});
  square.set_data(square.detach().t());
  of_square.TakeBack();
  EXPECT_TRUE(square.is_contiguous());
  EXPECT_EQ(square[0][1].item<float>(), 2);

  at::Tensor one = at::full({2}, 1.0), two = at::full({2}, 2.0);
  FlatParameters swapped = MakeFlat({one, two});
  const at::Tensor data = one.detach();
  one.set_data(two.detach());
  two.set_data(data);
  swapped.TakeBack();
  EXPECT_EQ(one[0].item<float>(), 2);
  EXPECT_EQ(two[0].item<float>(), 1);

  b.set_data(at::full({4}, 7.0));
  EXPECT_THROW(flat.TakeBack(), collectives::InvalidArgument);
  b.set_data(at::full({3}, 7.0, at::kDouble));
  EXPECT_THROW(flat.TakeBack(), collectives::InvalidArgument);
}

}  // namespace
}  // namespace trainsys
