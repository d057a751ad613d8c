#include <ATen/ATen.h>
#include <c10/core/StorageImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/recompute/segments.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/recompute/checkpoint.h"

namespace trainsys {
namespace {

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

TEST_F(CheckpointTest, ANestedSegmentKeepsNothingOfItsOwn) {
  const std::vector<Block> blocks{Block(8, 16), Block(8, 16), Block(8, 16)};
  const at::Tensor x = at::randn({4, 8}).set_requires_grad(true);
  const SavedBytesScope saved;
  const at::Tensor y = Nested(blocks, 0, x);
  EXPECT_EQ(saved.raw_bytes(), 4 * 8 * 4);
  y.sum().backward();
  EXPECT_EQ(saved.distinct_bytes(), 0);
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

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

int64_t NumAlive(const std::vector<WeakStorage>& storages) {
  return std::count_if(storages.begin(), storages.end(),
                       [](const WeakStorage& s) { return !s.expired(); });
}

// A layer that remembers, weakly, what each of its runs has made.
Layer Watched(std::vector<WeakStorage>& made) {
  return [&made](const at::Tensor& t) {
    const at::Tensor h = t.exp();
    made.push_back(h.storage().getWeakStorageImpl());
    return h.sin();
  };
}

TEST_F(CheckpointTest, AHundredStepsLeaveNothingAlive) {
  std::vector<WeakStorage> made;
  const Layer layer = Watched(made);
  const at::Tensor w = at::ones({8}).set_requires_grad(true);
  const SavedBytesScope saved({w});
  int64_t peak = 0;
  for (int step = 0; step < 100; ++step) {
    at::Tensor y = w;
    for (int i = 0; i < 3; ++i) y = Checkpoint(layer, y);
    y.sum().backward();
    y.reset();
    ASSERT_EQ(NumAlive(made), 0) << "step " << step;
    ASSERT_EQ(saved.distinct_bytes(), 0) << "step " << step;
    if (step == 0) peak = saved.peak_distinct_bytes();
    ASSERT_EQ(saved.peak_distinct_bytes(), peak) << "step " << step;
  }
  EXPECT_EQ(made.size(), 600u);
  // Two inputs, apart from the parameter, and what one segment saves.
  EXPECT_EQ(peak, 3 * 8 * 4);
}

TEST_F(CheckpointTest, NothingOfTheSegmentAboveIsAliveWhenTheNextOneBegins) {
  constexpr int kSegments = 4;
  std::vector<std::vector<WeakStorage>> made(kSegments);
  const at::Tensor x = at::ones({8}).set_requires_grad(true);
  at::Tensor y = x * 1;
  std::vector<int64_t> alive;
  for (auto& m : made) {
    y.register_hook([&made, &alive](const at::Tensor&) {
      int64_t all = 0;
      for (const auto& other : made) all += NumAlive(other);
      alive.push_back(all);
    });
    y = Checkpoint(Watched(m), y);
  }
  const at::Tensor loss = y.sum();
  y.reset();
  loss.backward();
  EXPECT_EQ(alive, std::vector<int64_t>(kSegments, 0));
  for (const auto& m : made) EXPECT_EQ(m.size(), 2u);
}

// A module keeps something of its last graph, as for an auxiliary loss: the
// second run replaces it, and so frees a part of the graph that asked for it.
TEST_F(CheckpointTest, TheSecondRunMayFreeAPartOfTheFirstGraph) {
  const auto gradient = [](Mode mode) {
    at::Tensor kept;
    const at::Tensor x = at::full({3}, 0.5).set_requires_grad(true);
    const Layer layer = [&kept](const at::Tensor& t) {
      const at::Tensor p = t.exp();
      kept = (p * p.log()).sum();
      return p * p;
    };
    Apply(mode, layer, x).sum().backward();
    return x.grad();
  };
  ExpectSameBits({gradient(Mode::kCheckpointed)}, {gradient(Mode::kPlain)});
}

// After its second run a segment no longer holds its function: a module that
// keeps a tensor of its own graph does not hold itself.
TEST_F(CheckpointTest, AModuleThatKeepsItsOwnGraphIsFreedAfterBackward) {
  struct Module {
    at::Tensor kept;
  };
  const at::Tensor x = at::ones({3}).set_requires_grad(true);
  auto module = std::make_shared<Module>();
  const std::weak_ptr<Module> watched = module;
  at::Tensor y = Checkpoint(
      [module](const at::Tensor& t) {
        const at::Tensor p = t.exp();
        const at::Tensor aside = p.sin().sum();
        if (!IsRecomputing()) module->kept = aside;
        return p * p;
      },
      x);
  y.sum().backward();
  y.reset();
  module.reset();
  EXPECT_TRUE(watched.expired());
}

TEST_F(CheckpointTest, TheSecondRunIsBookedAsTheFirstWhateverBackwardIs) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const at::Tensor x = at::ones({10}).set_requires_grad(true);
  Attribute(x, MemoryCategory::kInput);
  const SavedBytesScope saved;
  const at::Tensor loss =
      Checkpoint([](const at::Tensor& t) { return t.exp().exp().exp(); }, x)
          .sum();
  EXPECT_EQ(ledger.Peak().of_category[MemoryCategory::kActivation], 0);
  const CategoryScope others(MemoryCategory::kOther);
  loss.backward();
  EXPECT_EQ(ledger.Peak().of_category[MemoryCategory::kActivation], 3 * 40);
}

}  // namespace
}  // namespace trainsys
