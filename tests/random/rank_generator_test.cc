#include "trainsys/random/rank_generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <thread>
#include <vector>

namespace trainsys {
namespace {

constexpr int kRanks = 4;

at::Generator Seeded(uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

// Everything that a model draws: initial weights, dropout masks, noise.
std::vector<double> Draw() {
  torch::nn::Linear linear(16, 32);
  torch::nn::Dropout dropout(0.5);
  auto y = dropout(linear(at::randn({8, 16})));
  y.sum().backward();
  return {y.sum().item<double>(), linear->weight.sum().item<double>(),
          linear->weight.grad().sum().item<double>()};
}

std::vector<double> DrawRepeatedly(const at::Generator& generator) {
  RankGeneratorScope scope(generator);
  std::vector<double> all;
  for (int i = 0; i < 50; ++i) {
    for (double value : Draw()) all.push_back(value);
  }
  return all;
}

std::vector<std::vector<double>> DrawOnFourThreads() {
  std::vector<std::vector<double>> drawn(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&drawn, rank] {
      drawn[rank] = DrawRepeatedly(MakeRankGenerator(7, 0, rank));
    });
  }
  for (auto& thread : threads) thread.join();
  return drawn;
}

TEST(RankGeneratorTest, ConcurrentRunsEqualEachOtherAndOneRankAtATime) {
  const auto first = DrawOnFourThreads();
  const auto second = DrawOnFourThreads();
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(first[rank], second[rank]) << "rank " << rank;
    EXPECT_EQ(first[rank], DrawRepeatedly(MakeRankGenerator(7, 0, rank)))
        << "rank " << rank;
  }
}

TEST(RankGeneratorTest, NumbersAreThoseOfManualSeed) {
  at::manual_seed(9);
  const auto expected = Draw();
  at::manual_seed(1);  // what the scope must not draw from
  RankGeneratorScope scope(Seeded(9));
  EXPECT_EQ(Draw(), expected);
}

TEST(RankGeneratorTest, ScopeLeavesTheDefaultGeneratorUntouched) {
  at::manual_seed(3);
  const auto expected = Draw();
  at::manual_seed(3);
  {
    RankGeneratorScope scope(Seeded(4));
    Draw();
  }
  EXPECT_EQ(Draw(), expected);
}

TEST(RankGeneratorTest, SeedsStepsAndRanksDiffer) {
  const auto numbers = [](uint64_t seed, int64_t step, int rank) {
    return at::randn({32}, MakeRankGenerator(seed, step, rank));
  };
  const at::Tensor base = numbers(1, 1, 1);
  EXPECT_TRUE(at::equal(base, numbers(1, 1, 1)));
  EXPECT_FALSE(at::equal(base, numbers(2, 1, 1)));
  EXPECT_FALSE(at::equal(base, numbers(1, 2, 1)));
  EXPECT_FALSE(at::equal(base, numbers(1, 1, 2)));
  EXPECT_FALSE(at::equal(numbers(1, 2, 3), numbers(1, 3, 2)));
}

TEST(RankGeneratorTest, ScopesNestAndCurrentGeneratorFollows) {
  const at::Generator outer = Seeded(1), inner = Seeded(2);
  EXPECT_EQ(CurrentGenerator(), at::detail::getDefaultCPUGenerator());
  {
    RankGeneratorScope outer_scope(outer);
    EXPECT_EQ(CurrentGenerator(), outer);
    {
      RankGeneratorScope inner_scope(inner);
      EXPECT_EQ(CurrentGenerator(), inner);
      EXPECT_TRUE(at::equal(at::randn({8}), at::randn({8}, Seeded(2))));
    }
    EXPECT_EQ(CurrentGenerator(), outer);
    EXPECT_TRUE(at::equal(at::randn({8}), at::randn({8}, Seeded(1))));
  }
  EXPECT_EQ(CurrentGenerator(), at::detail::getDefaultCPUGenerator());
}

TEST(RankGeneratorTest, ANamedGeneratorIsNotReplaced) {
  RankGeneratorScope scope(Seeded(1));
  EXPECT_TRUE(at::equal(at::randn({8}, Seeded(5)), at::randn({8}, Seeded(5))));
}

TEST(RankGeneratorTest, RestoredStateDrawsTheSameDropoutMaskAgain) {
  RankGeneratorScope scope(MakeRankGenerator(1, 2, 3));
  at::Generator generator = CurrentGenerator();
  const at::Tensor state = generator.get_state();
  const at::Tensor once = at::dropout(at::ones({64}), 0.5, true);
  generator.set_state(state);
  EXPECT_TRUE(at::equal(once, at::dropout(at::ones({64}), 0.5, true)));
  EXPECT_FALSE(at::equal(once, at::dropout(at::ones({64}), 0.5, true)));
}

}  // namespace
}  // namespace trainsys
