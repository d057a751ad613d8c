#include "trainsys/memory/ledger.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/errors.h"
#include "trainsys/memory/saved_bytes.h"

namespace trainsys {
namespace {

using enum MemoryCategory;
using ::testing::Each;
using ::testing::Field;

// Of n f32, 4n bytes.
at::Tensor Make(int64_t n) { return at::empty({n}); }

at::Tensor Make(int64_t n, MemoryCategory category) {
  const CategoryScope scope(category);
  return Make(n);
}

MemorySplit Split(
    std::initializer_list<std::pair<MemoryCategory, int64_t>> bytes) {
  MemorySplit split;
  for (const auto& [category, n] : bytes) split[category] += n;
  return split;
}

TEST(MemoryLedgerTest, CountsEachAllocationInTheCategoryOfItsScope) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  {
    const CategoryScope parameters(kParameter);
    const at::Tensor p = Make(10);
    const at::Tensor g = Make(20, kGradient);
    const at::Tensor again = Make(1);
    EXPECT_EQ(ledger.Current(), Split({{kParameter, 44}, {kGradient, 80}}));
    EXPECT_EQ(ledger.Current().Total(), 124);
  }
  const at::Tensor t = Make(3);
  EXPECT_EQ(ledger.Current(), Split({{kTemporary, 12}}));
}

TEST(MemoryLedgerTest, TheDataStartsOn64BytesAndHoldsWhatIsWritten) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  for (int64_t n : {1, 15, 16, 17, 1000, 1 << 20}) {
    const at::Tensor t = Make(n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data_ptr()) % 64, 0u) << n;
    t.fill_(2);
    EXPECT_EQ(t.sum().item<float>(), 2.0f * static_cast<float>(n));
  }
  EXPECT_EQ(ledger.Current().Total(), 0);
}

TEST(MemoryLedgerTest, AnEmptyTensorCostsNothing) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const at::Tensor t = Make(0);
  EXPECT_EQ(ledger.Current().Total(), 0);
  Attribute(t, kParameter);
  Attribute(at::Tensor(), kParameter);
}

TEST(MemoryLedgerTest, ViewsAndAliasesAreCountedOnce) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const at::Tensor t = Make(100);
  const at::Tensor view = t.narrow(0, 10, 20).view({4, 5});
  EXPECT_EQ(ledger.Current(), Split({{kTemporary, 400}}));
  Attribute(view, kOther);
  EXPECT_EQ(ledger.Current(), Split({{kOther, 400}}));
}

TEST(MemoryLedgerTest, AttributeMovesAllBytesAndSetsPaddingApart) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  at::Tensor t = Make(100);
  Attribute(t, kGradient, /*padding_bytes=*/40);
  EXPECT_EQ(ledger.Current(), Split({{kGradient, 360}, {kPadding, 40}}));
  Attribute(t, kOptimizerState);
  EXPECT_EQ(ledger.Current(), Split({{kOptimizerState, 400}}));
  t.reset();
  EXPECT_EQ(ledger.Current(), MemorySplit{});
}

TEST(MemoryLedgerTest, ThePeakHasTheSplitOfItsMoment) {
  MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const at::Tensor p = Make(10, kParameter);
  { const at::Tensor a = Make(100); }
  {
    const at::Tensor g = Make(20, kGradient);
    EXPECT_EQ(ledger.Peak().bytes, 440);
    EXPECT_EQ(ledger.Peak().split,
              Split({{kParameter, 40}, {kTemporary, 400}}));
    EXPECT_EQ(ledger.Peak().of_category,
              Split({{kParameter, 40}, {kTemporary, 400}, {kGradient, 80}}));
  }
  ledger.ResetPeak();
  EXPECT_EQ(ledger.Peak().bytes, 40);
  EXPECT_EQ(ledger.Peak().split, ledger.Current());
}

TEST(MemoryLedgerTest, AFreeOnAnotherThreadIsBookedWhereItWasMade) {
  const MemoryLedger ledger, other;
  const LedgerScope mine(ledger);
  at::Tensor t = Make(1000);
  std::thread([&] {
    const LedgerScope theirs(other);
    t.reset();
  }).join();
  EXPECT_EQ(ledger.Current().Total(), 0);
  EXPECT_EQ(other.Current().Total(), 0);
}

TEST(MemoryLedgerTest, AnAllocationMayOutliveItsLedger) {
  at::Tensor t;
  {
    const MemoryLedger ledger;
    const LedgerScope mine(ledger);
    t = Make(1000);
  }
  t.zero_();
  t.reset();
}

TEST(MemoryLedgerTest, ScopesNestAndWhatIsOutsideIsTheProcesss) {
  const MemoryLedger outer, inner;
  const int64_t before = ProcessLedger().Current().Total();
  const at::Tensor nobodys = Make(5);
  {
    const LedgerScope scope(outer);
    const at::Tensor a = Make(1);
    {
      const LedgerScope nested(inner);
      const at::Tensor b = Make(2);
      EXPECT_EQ(inner.Current().Total(), 8);
    }
    const at::Tensor c = Make(3);
    EXPECT_EQ(outer.Current().Total(), 16);
  }
  EXPECT_EQ(ProcessLedger().Current().Total(), before + 20);
}

TEST(MemoryLedgerTest, AThreadMayWorkForAnothersLedger) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  at::Tensor t;
  std::thread([&t, context = CurrentMemoryContext()] {
    const MemoryContextScope for_the_first(context);
    t = Make(7);
  }).join();
  EXPECT_EQ(ledger.Current().Total(), 28);
}

TEST(MemoryLedgerTest, SavedTemporariesAreActivationsForAsLong) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const at::Tensor x = at::ones({10}).set_requires_grad(true);
  Attribute(x, kInput);
  at::Tensor loss;
  {
    const SavedBytesScope saved;
    const at::Tensor y = x * x;  // saves x, which stays an input
    EXPECT_EQ(ledger.Current(), Split({{kInput, 40}, {kTemporary, 40}}));
    loss = y.exp().exp().sum();  // saves two of its own
    EXPECT_EQ(saved.distinct_bytes(), 120);
  }
  EXPECT_EQ(ledger.Current(),
            Split({{kInput, 40}, {kTemporary, 4}, {kActivation, 80}}));
  loss.backward();
  EXPECT_EQ(ledger.Current()[kActivation], 0);
  EXPECT_EQ(ledger.Peak().of_category[kActivation], 80);
}

TEST(MemoryLedgerTest, TwoScopesThatSaveATensorCountItOnce) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const at::Tensor x = at::ones({10}).set_requires_grad(true);
  const SavedBytesScope outer;
  at::Tensor y;
  {
    const SavedBytesScope inner;
    y = x.exp();
  }
  EXPECT_EQ(ledger.Current()[kActivation], 40);
  y.reset();
  EXPECT_EQ(ledger.Current()[kActivation], 0);
  EXPECT_EQ(ledger.Current(), Split({{kTemporary, 40}}));  // x
}

TEST(MemoryLedgerTest, MarksKeepTheLatestSplitOfTheirName) {
  const MemoryLedger ledger;
  MarkMemory("nobody's");
  const LedgerScope mine(ledger);
  {
    const at::Tensor t = Make(5);
    MarkMemory("a");
    MarkMemory("b");
  }
  MarkMemory("a");
  EXPECT_EQ(ledger.At("a"), MemorySplit{});
  EXPECT_EQ(ledger.At("b"), Split({{kTemporary, 20}}));
  EXPECT_THAT(ledger.Marks(),
              testing::ElementsAre(Field(&MemoryMark::name, "a"),
                                   Field(&MemoryMark::name, "b")));
  EXPECT_THROW(ledger.At("c"), collectives::Error);
}

// The events alone tell what there is: replay them.
MemorySplit Replay(const std::vector<MemoryEvent>& events) {
  MemorySplit split;
  const auto add = [&split](const MemoryEvent& e, MemoryCategory c, int sign) {
    split[c] += sign * (e.bytes - e.padding_bytes);
    split[kPadding] += sign * e.padding_bytes;
  };
  for (const MemoryEvent& e : events) {
    if (e.from) add(e, *e.from, -1);
    if (e.to) add(e, *e.to, 1);
  }
  return split;
}

TEST(MemoryLedgerTest, TheEventsReplayToTheCurrentSplit) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const SavedBytesScope saved;
  const at::Tensor x = at::ones({10}).set_requires_grad(true);
  const at::Tensor p = Make(7, kParameter);
  at::Tensor y = x.exp().exp();
  Attribute(p, kOther, /*padding_bytes=*/8);
  EXPECT_EQ(Replay(ledger.Events()), ledger.Current());
  EXPECT_EQ(ledger.Current()[kPadding], 8);
  EXPECT_EQ(ledger.lost_events(), 0u);
  y.reset();
  const std::vector<MemoryEvent> events = ledger.Events();
  EXPECT_EQ(Replay(events), ledger.Current());
  EXPECT_EQ(events[0].from, std::nullopt);
  EXPECT_EQ(events[0].bytes, 40);
  EXPECT_EQ(events[0].address, reinterpret_cast<uintptr_t>(x.data_ptr()));
  EXPECT_TRUE(std::is_sorted(
      events.begin(), events.end(),
      [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; }));
}

TEST(MemoryLedgerTest, AFullRingKeepsTheNewestEventsInOrder) {
  const MemoryLedger ledger(/*event_capacity=*/5);
  const LedgerScope mine(ledger);
  for (int64_t n = 1; n <= 4; ++n) const at::Tensor t = Make(n);
  std::vector<int64_t> bytes;
  for (const MemoryEvent& e : ledger.Events()) bytes.push_back(e.bytes);
  EXPECT_THAT(bytes, testing::ElementsAre(8, 12, 12, 16, 16));
  EXPECT_EQ(ledger.lost_events(), 3u);
}

TEST(MemoryLedgerTest, AStorageThatGrowsIsCountedAtItsNewSize) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const CategoryScope scope(kOther);
  const at::Tensor t = Make(10);
  t.resize_({100});
  EXPECT_EQ(ledger.Current(), Split({{kOther, 400}}));
}

TEST(MemoryLedgerTest, AStorageThatIsResizedWhileSavedCountsRightlyAfterwards) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const at::Tensor w = at::ones({10}).set_requires_grad(true);
  Attribute(w, kParameter);
  const at::Tensor t = Make(10);
  {
    const SavedBytesScope saved;
    const at::Tensor y = w * t;  // saves t
    EXPECT_EQ(ledger.Current()[kActivation], 40);
    t.resize_({1000});
  }
  EXPECT_EQ(ledger.Current(), Split({{kParameter, 40}, {kTemporary, 4000}}));
  const SavedBytesScope saved;
  const at::Tensor z = w.narrow(0, 0, 1) * t;
  EXPECT_EQ(saved.distinct_bytes(), 4000);
  EXPECT_EQ(ledger.Current()[kActivation], 4000);
}

TEST(MemoryLedgerTest, TheLargestOfACategoryMayComeWhenSomethingIsReleased) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  const at::Tensor x = at::ones({1000}).set_requires_grad(true);
  Attribute(x, kInput);
  at::Tensor y, z;
  {
    const SavedBytesScope saved;
    y = x.exp();
    z = y.sum();
  }
  EXPECT_EQ(ledger.Peak().of_category[kTemporary], 4000);
  z.backward();
  z.reset();
  EXPECT_EQ(ledger.Current()[kTemporary], 2 * 4000);  // y and x's gradient
  EXPECT_GE(ledger.Peak().of_category[kTemporary], 2 * 4000);
}

// Counted apart, where memory comes and goes.
TEST(MemoryLedgerTest, TheCategoriesAddUpToTheLiveBytesWhateverHappens) {
  const MemoryLedger ledger;
  const LedgerScope mine(ledger);
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 200; ++i) {
    const at::Tensor x =
        Make(i + 1, kMemoryCategories[static_cast<size_t>(i) %
                                      kMemoryCategories.size()])
            .fill_(1)
            .set_requires_grad(i % 3 == 0);
    const SavedBytesScope saved;
    at::Tensor y = x.exp() * x;
    if (i % 5 == 0) Attribute(y, kGradient, /*padding_bytes=*/4);
    if (i % 7 == 0) kept.push_back(y);
    if (i % 11 == 0) kept.clear();
    if (i % 3 == 0) y.sum().backward();
    ASSERT_EQ(ledger.Current().Total(), ledger.LiveBytes()) << i;
  }
  kept.clear();
  EXPECT_EQ(ledger.LiveBytes(), 0);
}

// Each thread's books are those of a run alone, and everything goes to zero.
TEST(MemoryLedgerTest, ThreadsKeepTheirOwnBooksWhileOthersFreeTheirTensors) {
  constexpr int kThreads = 8, kTimes = 200;
  std::vector<std::vector<at::Tensor>> kept(kThreads);
  std::vector<MemoryLedger> ledgers(kThreads);
  const auto on_threads = [](const auto& fn) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(fn, i);
    for (std::thread& t : threads) t.join();
  };
  std::vector<int> wrong(kThreads, 0);
  on_threads([&](int i) {
    const LedgerScope mine(ledgers[i]);
    for (int k = 0; k < kTimes; ++k) {
      kept[i].push_back(Make(i + 1, k % 2 ? kGradient : kParameter));
      const at::Tensor t = Make(1000);
      wrong[i] += ledgers[i].Current()[kTemporary] != 4000;
    }
  });
  EXPECT_THAT(wrong, Each(0));
  for (int i = 0; i < kThreads; ++i) {
    const int64_t half = kTimes / 2 * 4 * (i + 1);
    EXPECT_EQ(ledgers[i].Current(),
              Split({{kGradient, half}, {kParameter, half}}));
    EXPECT_EQ(ledgers[i].Peak().bytes, 2 * half + 4000);
  }
  on_threads([&](int i) { kept[(i + 1) % kThreads].clear(); });
  for (const MemoryLedger& ledger : ledgers) {
    EXPECT_EQ(ledger.Current(), MemorySplit{});
  }
}

}  // namespace
}  // namespace trainsys
