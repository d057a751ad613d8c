#include "trainsys/memory/saved_bytes.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "collectives/recomputing.h"

namespace trainsys {
namespace {

// All tensors here are [n] f32 unless they say otherwise.
at::Tensor Leaf(int64_t n) { return at::ones({n}).set_requires_grad(true); }

TEST(SavedBytesScopeTest, CountsRepeatsRawAndEachStorageOnce) {
  const at::Tensor x = Leaf(10);
  const SavedBytesScope saved;
  const at::Tensor y = x * x;  // saves x twice
  EXPECT_EQ(saved.raw_bytes(), 80);
  EXPECT_EQ(saved.distinct_bytes(), 40);
  const at::Tensor z = y.exp();  // saves z
  EXPECT_EQ(saved.raw_bytes(), 120);
  EXPECT_EQ(saved.distinct_bytes(), 80);
}

TEST(SavedBytesScopeTest, AViewCountsRawAsItselfAndDistinctAsItsStorage) {
  const at::Tensor x = Leaf(10).detach();
  const at::Tensor w = Leaf(3);
  const SavedBytesScope saved;
  const at::Tensor y = w * x.narrow(0, 2, 3);  // saves the view
  EXPECT_EQ(saved.raw_bytes(), 12);            // w needs x, x does not need w
  EXPECT_EQ(saved.distinct_bytes(), 40);
}

TEST(SavedBytesScopeTest, ParametersAreInRawOnly) {
  const at::Tensor x = at::ones({2, 3}).set_requires_grad(true);
  const at::Tensor w = at::ones({5, 3}).set_requires_grad(true);
  const SavedBytesScope saved({w});
  const at::Tensor y = at::linear(x, w);  // saves x and w transposed, a view
  EXPECT_EQ(saved.raw_bytes(), (6 + 15) * 4);
  EXPECT_EQ(saved.distinct_bytes(), 6 * 4);
}

TEST(SavedBytesScopeTest, BackwardFreesAndThePeakStays) {
  const at::Tensor x = Leaf(10);
  const SavedBytesScope saved;
  x.exp().exp().sum().backward();
  EXPECT_EQ(saved.raw_bytes(), 80);
  EXPECT_EQ(saved.distinct_bytes(), 0);
  EXPECT_EQ(saved.peak_distinct_bytes(), 80);
  EXPECT_TRUE(at::allclose(x.grad(),
                           at::exp(at::exp(x.detach())) * at::exp(x.detach())));
}

TEST(SavedBytesScopeTest, ADroppedGraphIsFreedWithoutAReferenceCycle) {
  const at::Tensor x = Leaf(10);
  const SavedBytesScope saved;
  { const at::Tensor y = x.exp(); }  // exp saves its own output
  EXPECT_EQ(saved.distinct_bytes(), 0);
}

TEST(SavedBytesScopeTest, AFreeOnAnotherThreadIsBookedHere) {
  const at::Tensor x = Leaf(10);
  const SavedBytesScope saved;
  at::Tensor y = x.exp();
  EXPECT_EQ(saved.distinct_bytes(), 40);
  std::thread([&] { y.reset(); }).join();
  EXPECT_EQ(saved.distinct_bytes(), 0);
}

TEST(SavedBytesScopeTest, AGraphMayOutliveItsScope) {
  const at::Tensor x = Leaf(10);
  at::Tensor y;
  {
    const SavedBytesScope saved;
    y = x.exp();
  }
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), x.detach().exp()));
}

TEST(SavedBytesScopeTest, AnOuterScopeCountsWhatAnInnerOneCounts) {
  const at::Tensor x = Leaf(10);
  const SavedBytesScope outer;
  at::Tensor y;
  {
    const SavedBytesScope inner;
    y = x.exp();
    EXPECT_EQ(inner.distinct_bytes(), 40);
  }
  const at::Tensor z = y.exp();
  EXPECT_EQ(outer.raw_bytes(), 80);
  EXPECT_EQ(outer.distinct_bytes(), 80);
  z.sum().backward();
  EXPECT_EQ(outer.distinct_bytes(), 0);
}

TEST(SavedBytesScopeTest, NumbersOfTheProgramAreNotTensors) {
  const at::Tensor x = Leaf(10);
  const SavedBytesScope saved;
  const at::Tensor y = x * 0.1;
  EXPECT_EQ(saved.raw_bytes(), 0);
}

TEST(SavedBytesScopeTest, ANumberGivesTheSameBitsAsWithoutTheScope) {
  const auto gradient = [](bool count) {
    const at::Tensor x = at::full({}, 0.7f).set_requires_grad(true);
    std::unique_ptr<SavedBytesScope> saved;
    if (count) saved = std::make_unique<SavedBytesScope>();
    ((x * 0.1) * (x * 0.3)).backward();
    return x.grad();
  };
  EXPECT_TRUE(at::equal(gradient(true), gradient(false)));
}

TEST(SavedBytesScopeTest, RecomputedTensorsAreDistinctButNotRaw) {
  const at::Tensor x = Leaf(10);
  const SavedBytesScope saved;
  const collectives::RecomputingScope recomputing;
  const at::Tensor y = x.exp();
  EXPECT_EQ(saved.raw_bytes(), 0);
  EXPECT_EQ(saved.distinct_bytes(), 40);
}

TEST(SavedBytesScopeTest, AnInPlaceChangeIsStillDetected) {
  const at::Tensor x = Leaf(10);
  const SavedBytesScope saved;
  at::Tensor y = x.exp();
  const at::Tensor z = (y * y).sum();
  y.add_(1);
  try {
    z.backward();
    FAIL() << "not detected";
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("inplace operation"));
  }
}

TEST(SavedBytesScopeTest, ThreadsCountTheirOwn) {
  constexpr int kThreads = 8;
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&wrong = wrong[i], i] {
      const at::Tensor x = Leaf(10 * (i + 1));
      for (int k = 0; k < 50; ++k) {
        const SavedBytesScope saved;
        const at::Tensor loss = x.exp().exp().sum();
        wrong += saved.distinct_bytes() != 80 * (i + 1);
        loss.backward();
        wrong += saved.distinct_bytes() != 0;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

}  // namespace
}  // namespace trainsys
