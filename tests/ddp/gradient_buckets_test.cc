#include "trainsys/ddp/gradient_buckets.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "collectives/errors.h"
#include "tests/ddp/layers.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using ::testing::HasSubstr;
using Order = std::vector<size_t>;

constexpr BucketLimits kOneBucket{1 << 20, 1 << 20};
constexpr BucketLimits kOneEach{1, 1};

at::Tensor Parameter(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return at::zeros(sizes, dtype).set_requires_grad(true);
}

// Other numbers for each seed.
at::Tensor Numbers(const at::Tensor& p, int seed) {
  return (at::arange(p.numel(), p.scalar_type()) + 100 * seed).view(p.sizes());
}

Tensors SomeParameters() {
  return {Parameter({3}),    Parameter({2, 5}),           Parameter({0, 4}),
          Parameter({}),     Parameter({7}, at::kDouble), Parameter({16}),
          Parameter({1, 17})};
}

const Order kSomeOrder{6, 4, 0, 2, 3, 5, 1};

// Where the plan has the gradient of plan()[bucket].parameters[i].
const void* PlaceOf(const GradientBuckets& buckets, size_t bucket, size_t i) {
  const at::Tensor& flat = buckets.flat(bucket);
  return static_cast<const char*>(flat.data_ptr()) +
         buckets.plan()[bucket].layout.offsets[i] * flat.element_size();
}

// Is every gradient a contiguous tensor over its planned place?
void ExpectInPlace(const GradientBuckets& buckets, const Tensors& parameters) {
  for (size_t b = 0; b < buckets.plan().size(); ++b) {
    const Order& members = buckets.plan()[b].parameters;
    for (size_t i = 0; i < members.size(); ++i) {
      SCOPED_TRACE("parameter " + std::to_string(members[i]));
      const at::Tensor& grad = parameters[members[i]].grad();
      ASSERT_TRUE(grad.defined());
      if (grad.numel() > 0) {
        EXPECT_EQ(grad.data_ptr(), PlaceOf(buckets, b, i));
      }
      EXPECT_TRUE(grad.is_contiguous());
      EXPECT_EQ(grad.sizes(), parameters[members[i]].sizes());
    }
  }
}

TEST(GradientBucketsTest, EachGradientIsBroughtToItsPlaceOn64Bytes) {
  for (const BucketLimits& limits :
       {kOneEach, BucketLimits{128, 64}, kOneBucket}) {
    const Tensors parameters = SomeParameters();
    GradientBuckets buckets(parameters, kSomeOrder, limits);
    Tensors expected;
    for (size_t p = 0; p < parameters.size(); ++p) {
      expected.push_back(Numbers(parameters[p], static_cast<int>(p)));
      parameters[p].mutable_grad() = expected[p].clone();
      EXPECT_TRUE(buckets.Bring(p));
    }
    ExpectInPlace(buckets, parameters);
    EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
    int64_t bytes = 0;
    for (size_t b = 0; b < buckets.plan().size(); ++b) {
      bytes += static_cast<int64_t>(buckets.flat(b).nbytes());
      EXPECT_EQ(buckets.flat(b).numel(), buckets.plan()[b].layout.elems);
      EXPECT_EQ(buckets.Close(b).label, "bucket " + std::to_string(b));
      for (size_t i = 0; i < buckets.plan()[b].parameters.size(); ++i) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(PlaceOf(buckets, b, i)) % 64, 0u);
      }
    }
    EXPECT_EQ(buckets.Bytes(), bytes);
  }
}

TEST(GradientBucketsTest, NothingButGradientsIsWritten) {
  const Tensors parameters{Parameter({3}), Parameter({2, 5})};
  GradientBuckets buckets(parameters, {1, 0}, kOneBucket);
  for (const at::Tensor& p : parameters) p.mutable_grad() = Numbers(p, 1);
  buckets.Bring(0);
  buckets.Bring(1);
  const at::Tensor expected = at::zeros({32});
  expected.narrow(0, 0, 10).copy_(Numbers(parameters[1], 1).view({10}));
  expected.narrow(0, 16, 3).copy_(Numbers(parameters[0], 1));
  EXPECT_TRUE(EqualBits({buckets.flat(0)}, {expected}));
}

// What may have become of a gradient that lay in its place, and its values.
struct Change {
  std::string name;
  std::function<at::Tensor(const at::Tensor& p)> make;
};

const std::vector<Change> kChanges{
    {"none", [](const at::Tensor& p) { return p.grad().clone(); }},
    {"zeroed in place",
     [](const at::Tensor& p) {
       p.grad().zero_();
       return at::zeros({2, 3});
     }},
    {"detached in place",
     [](const at::Tensor& p) {
       p.mutable_grad().detach_();
       return p.grad().clone();
     }},
    {"a detached copy of the tensor over it",
     [](const at::Tensor& p) {
       p.mutable_grad() = p.grad().detach();
       return p.grad().clone();
     }},
    {"replaced",
     [](const at::Tensor& p) {
       p.mutable_grad() = Numbers(p, 7);
       return Numbers(p, 7);
     }},
    {"replaced by one with strides",
     [](const at::Tensor& p) {
       p.mutable_grad() = Numbers(p, 7).view({3, 2}).t();
       return Numbers(p, 7).view({3, 2}).t().contiguous();
     }},
    {"pointed elsewhere",
     [](const at::Tensor& p) {
       p.mutable_grad().set_data(Numbers(p, 7));
       return Numbers(p, 7);
     }},
    {"pointed at something with strides",
     [](const at::Tensor& p) {
       p.mutable_grad().set_data(Numbers(p, 7).view({3, 2}).t());
       return Numbers(p, 7).view({3, 2}).t().contiguous();
     }},
    {"transposed over its place",
     [](const at::Tensor& p) {
       p.mutable_grad() = p.grad().view({3, 2}).t();
       return p.grad().clone().contiguous();
     }},
    {"dropped and made again",
     [](const at::Tensor& p) {
       p.mutable_grad().reset();
       p.mutable_grad() = Numbers(p, 7);
       return Numbers(p, 7);
     }},
};

TEST(GradientBucketsTest, WhateverBecameOfAGradientItIsBroughtBack) {
  for (const Change& change : kChanges) {
    SCOPED_TRACE(change.name);
    const Tensors parameters{Parameter({5}), Parameter({2, 3})};
    GradientBuckets buckets(parameters, {0, 1}, kOneBucket);
    for (const at::Tensor& p : parameters) {
      p.mutable_grad() = Numbers(p, 3);
    }
    buckets.Bring(0);
    for (int time = 0; time < 2; ++time) {
      buckets.Bring(1);
      const at::Tensor values = change.make(parameters[1]);
      EXPECT_TRUE(buckets.Bring(1));
      ExpectInPlace(buckets, parameters);
      EXPECT_TRUE(EqualBits({parameters[1].grad()}, {values}));
    }
    EXPECT_TRUE(EqualBits({parameters[0].grad()}, {Numbers(parameters[0], 3)}))
        << "its neighbour";
  }
}

TEST(GradientBucketsTest,
     AGradientThatIsNotThereChangesNoSumAndStaysUndefined) {
  const Tensors parameters{Parameter({2, 3})};
  GradientBuckets buckets(parameters, {0}, kOneBucket);
  parameters[0].mutable_grad() = Numbers(parameters[0], 1);
  buckets.Bring(0);
  parameters[0].mutable_grad().reset();
  EXPECT_FALSE(buckets.Bring(0));
  EXPECT_FALSE(parameters[0].grad().defined());
  // x + -0 is x, also for the zeros of both signs.
  const at::Tensor expected = at::full({16}, 0.0);
  expected.narrow(0, 0, 6).fill_(-0.0);
  EXPECT_TRUE(EqualBits({buckets.flat(0)}, {expected}));
}

TEST(GradientBucketsTest, AGradientUnlikeItsParameterIsRefused) {
  const Tensors parameters{Parameter({2, 3})};
  GradientBuckets buckets(parameters, {0}, kOneBucket);
  for (const at::Tensor& grad :
       {at::zeros({2, 3}, at::kDouble), at::zeros({3, 2}), at::zeros({100})}) {
    parameters[0].mutable_grad() = grad;
    EXPECT_THAT(ErrorOf<InvalidArgument>([&] { buckets.Bring(0); }),
                HasSubstr("a parameter [2, 3] Float has a gradient"));
  }
}

TEST(GradientBucketsTest, ShowMakesWhatIsInTheBucketTheGradient) {
  const Tensors parameters{Parameter({3}), Parameter({2, 3})};
  GradientBuckets buckets(parameters, {0, 1}, kOneBucket);
  const auto expect_shown = [&](double value) {
    buckets.flat(0).fill_(value);
    buckets.Show(0, true);
    buckets.Show(1, true);
    ExpectInPlace(buckets, parameters);
    EXPECT_TRUE(EqualBits(GradientsOf(parameters),
                          {at::full({3}, value), at::full({2, 3}, value)}));
  };
  expect_shown(1);
  parameters[0].mutable_grad().reset();
  parameters[1].mutable_grad() = Numbers(parameters[1], 7);
  expect_shown(2);
  parameters[1].mutable_grad().set_data(Numbers(parameters[1], 7));
  expect_shown(3);
}

TEST(GradientBucketsTest, DividingDividesEveryGradient) {
  const Tensors parameters{Parameter({3}), Parameter({2, 3}, at::kDouble)};
  GradientBuckets buckets(parameters, {0, 1}, kOneBucket);
  Tensors expected;
  for (size_t p = 0; p < 2; ++p) {
    parameters[p].mutable_grad() = Numbers(parameters[p], 1);
    expected.push_back(Numbers(parameters[p], 1) / 3);
    buckets.Bring(p);
  }
  for (size_t b = 0; b < buckets.plan().size(); ++b) buckets.Divide(b, 3);
  EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
}

TEST(GradientBucketsTest, AParameterThatWasConvertedOrResizedFitsNoMore) {
  const Tensors parameters{Parameter({3}), Parameter({2, 3})};
  const GradientBuckets buckets(parameters, {0, 1}, kOneBucket);
  EXPECT_TRUE(buckets.Fits(0));
  EXPECT_TRUE(buckets.Fits(1));
  at::Tensor(parameters[0]).set_data(at::zeros({3}));
  EXPECT_TRUE(buckets.Fits(0)) << "other data of the same kind";
  at::Tensor(parameters[0]).set_data(at::zeros({3}, at::kDouble));
  EXPECT_FALSE(buckets.Fits(0));
  at::Tensor(parameters[1]).set_data(at::zeros({2, 4}));
  EXPECT_FALSE(buckets.Fits(1));
}

TEST(GradientBucketsTest, GradientsThatAreThereMoveIntoNewBuckets) {
  const Tensors parameters = SomeParameters();
  for (size_t p : {0, 1, 4}) {
    parameters[p].mutable_grad() = Numbers(parameters[p], 1 + p);
  }
  const Tensors expected = GradientsOf(parameters);
  std::unique_ptr<GradientBuckets> buckets;
  for (const BucketLimits& limits : {kOneEach, kOneBucket, kOneEach}) {
    buckets = std::make_unique<GradientBuckets>(parameters, kSomeOrder, limits);
    EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
    const at::Tensor& flat = buckets->flat(buckets->plan().size() - 1);
    EXPECT_EQ(parameters[1].grad().storage().data(), flat.storage().data())
        << "the last in order";
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    EXPECT_EQ(buckets->Bring(p), expected[p].defined());
    buckets->Show(p, true);
  }
  ExpectInPlace(*buckets, parameters);
}

TEST(GradientBucketsTest, TheLedgerCountsGradientsOnceAndPaddingApart) {
  const MemoryLedger ledger;
  const Tensors parameters = SomeParameters();
  const LedgerScope mine(ledger);
  std::unique_ptr<GradientBuckets> buckets;
  constexpr int64_t kGradientBytes = 4 * (3 + 10 + 0 + 1 + 16 + 17) + 8 * 7;
  for (const BucketLimits& limits : {kOneEach, kOneBucket}) {
    buckets.reset();  // gradients keep the old ones alive
    buckets = std::make_unique<GradientBuckets>(parameters, kSomeOrder, limits);
    for (size_t p = 0; p < parameters.size(); ++p) {
      parameters[p].mutable_grad() = Numbers(parameters[p], 1);
      buckets->Bring(p);
    }
    EXPECT_EQ(ledger.Current()[MemoryCategory::kGradient], kGradientBytes);
    EXPECT_EQ(ledger.Current()[MemoryCategory::kPadding],
              buckets->Bytes() - kGradientBytes);
    EXPECT_EQ(ledger.Current().Total(), buckets->Bytes());
  }
}

}  // namespace
}  // namespace trainsys
