#include "trainsys/tensor/tensor_memory.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::Buffer;
using collectives::DType;
using collectives::InvalidArgument;
using ::testing::HasSubstr;

std::string Refusal(const at::Tensor& tensor) {
  try {
    BufferOf(tensor);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "not refused";
}

TEST(BufferOfTest, IsTheWholeTensorWithItsType) {
  const std::vector<std::pair<at::ScalarType, DType>> types{
      {at::kDouble, DType::kF64},    {at::kFloat, DType::kF32},
      {at::kBFloat16, DType::kBF16}, {at::kHalf, DType::kF16},
      {at::kLong, DType::kI64},      {at::kInt, DType::kI32},
      {at::kByte, DType::kU8},       {at::kBool, DType::kU8}};
  for (const auto& [torch_type, dtype] : types) {
    const at::Tensor tensor = at::empty({3, 5}, torch_type);
    const Buffer buffer = BufferOf(tensor);
    EXPECT_EQ(buffer.data, tensor.data_ptr());
    EXPECT_EQ(buffer.dtype, dtype);
    EXPECT_EQ(buffer.elems, 15);
  }
}

TEST(BufferOfTest, APartOfATensorStartsWhereThePartStarts) {
  const at::Tensor whole = at::arange(10, at::kFloat);
  const Buffer buffer = BufferOf(whole.narrow(0, 3, 4));
  EXPECT_EQ(*static_cast<float*>(buffer.data), 3);
  EXPECT_EQ(buffer.elems, 4);
}

TEST(BufferOfTest, AnEmptyTensorHasNoMemory) {
  const Buffer buffer = BufferOf(at::empty({0, 4}));
  EXPECT_EQ(buffer.data, nullptr);
  EXPECT_EQ(buffer.elems, 0);
}

TEST(BufferOfTest, StridesAreRefused) {
  EXPECT_THAT(Refusal(at::zeros({3, 4}).t()), HasSubstr("contiguous"));
  EXPECT_THAT(Refusal(at::zeros({3, 4}).narrow(1, 0, 2)),
              HasSubstr("contiguous"));
}

TEST(BufferOfTest, TypesThatNoCollectiveMovesAreRefusedByName) {
  EXPECT_THAT(Refusal(at::zeros({3}, at::kShort)), HasSubstr("Short"));
  EXPECT_THAT(Refusal(at::zeros({3}, at::kComplexFloat)),
              HasSubstr("ComplexFloat"));
}

TEST(AliasOfTest, SharesTheMemoryFromItsOffsetOn) {
  const at::Tensor flat = at::arange(20, at::kFloat);
  const at::Tensor alias = AliasOf(flat, 4, {2, 3});
  EXPECT_EQ(alias.sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_TRUE(alias.is_contiguous());
  EXPECT_EQ(alias[1][2].item<float>(), 9);
  alias.fill_(-1);
  EXPECT_EQ(flat[3].item<float>(), 3);
  EXPECT_EQ(flat[4].item<float>(), -1);
  EXPECT_EQ(flat[9].item<float>(), -1);
  EXPECT_EQ(flat[10].item<float>(), 10);
}

TEST(AliasOfTest, CountsFromTheStartOfAPart) {
  const at::Tensor part = at::arange(20, at::kFloat).narrow(0, 5, 10);
  EXPECT_EQ(AliasOf(part, 2, {1}).item<float>(), 7);
}

TEST(AliasOfTest, IsNoViewAndMayBeDetachedInPlace) {
  const at::Tensor flat = at::zeros({20});
  at::Tensor alias = AliasOf(flat, 4, {2, 3});
  EXPECT_FALSE(alias.is_view());
  alias.detach_();
  alias.fill_(1);
  EXPECT_EQ(flat[4].item<float>(), 1);
}

TEST(AliasOfTest, KeepsTheMemoryAliveByItself) {
  at::Tensor alias;
  {
    const at::Tensor flat = at::arange(20, at::kFloat);
    alias = AliasOf(flat, 4, {3});
  }
  EXPECT_EQ(alias[2].item<float>(), 6);
}

TEST(AliasOfTest, MayBeEmptyOrAScalar) {
  const at::Tensor flat = at::arange(20, at::kFloat);
  EXPECT_EQ(AliasOf(flat, 4, {0, 8}).sizes(), (at::IntArrayRef{0, 8}));
  EXPECT_EQ(AliasOf(flat, 4, {}).item<float>(), 4);
}

TEST(MarkWrittenTest, AGraphThatSavedTheTensorRefusesToRunBackward) {
  const at::Tensor x = at::zeros({3}).set_requires_grad(true);
  const at::Tensor before = x.square().sum();
  MarkWritten(x);
  EXPECT_THROW(before.backward(), c10::Error);
  x.square().sum().backward();
}

TEST(HashOfTest, SeesEveryBit) {
  for (const int64_t elems : {5, 8, 13}) {  // parts of words, and whole ones
    const at::Tensor bytes = at::zeros({elems}, at::kByte);
    const uint64_t before = HashOf({bytes});
    for (int64_t i = 0; i < elems; ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        bytes.data_ptr<uint8_t>()[i] = static_cast<uint8_t>(1 << bit);
        EXPECT_NE(HashOf({bytes}), before) << i << " " << bit;
      }
      bytes.data_ptr<uint8_t>()[i] = 0;
    }
    EXPECT_EQ(HashOf({bytes}), before);
  }
}

TEST(HashOfTest, SeesTheOrderOfElementsAndOfTensors) {
  const at::Tensor up = at::arange(100, at::kFloat);
  const at::Tensor down = up.flip(0);
  EXPECT_NE(HashOf({up}), HashOf({down}));
  EXPECT_NE(HashOf({up, down}), HashOf({down, up}));
}

TEST(HashOfTest, GoesByValuesNotByMemoryLayout) {
  const at::Tensor x = at::arange(12, at::kFloat).view({3, 4});
  EXPECT_EQ(HashOf({x.t()}), HashOf({x.t().contiguous()}));
  EXPECT_NE(HashOf({x.t()}), HashOf({x}));
}

TEST(HashOfTest, AnEmptyTensorChangesNothing) {
  const at::Tensor x = at::arange(12, at::kFloat);
  EXPECT_EQ(HashOf({at::empty({0, 3}), x}), HashOf({x}));
}

}  // namespace
}  // namespace trainsys
