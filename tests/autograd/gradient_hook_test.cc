#include "trainsys/autograd/gradient_hook.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

at::Tensor Parameter(at::IntArrayRef sizes) {
  return at::full(sizes, 0.5).set_requires_grad(true);
}

// Three layers, 4 -> 4; weights at even places, biases at odd ones.
struct Mlp {
  Mlp() {
    for (int layer = 0; layer < 3; ++layer) {
      parameters.push_back(Parameter({4, 4}));
      parameters.push_back(Parameter({4}));
    }
  }
  at::Tensor Loss() const {
    at::Tensor x = at::ones({2, 4});
    for (size_t i = 0; i < parameters.size(); i += 2) {
      x = at::gelu(at::linear(x, parameters[i], parameters[i + 1]));
    }
    return x.sum();
  }
  std::vector<at::Tensor> parameters;
};

std::vector<GradientHook> ReportTo(std::vector<int>& order, const Mlp& mlp) {
  std::vector<GradientHook> hooks;
  for (size_t i = 0; i < mlp.parameters.size(); ++i) {
    hooks.emplace_back(mlp.parameters[i],
                       [&order, i] { order.push_back(static_cast<int>(i)); });
  }
  return hooks;
}

TEST(GradientHookTest, ReportsEachParameterOncePerBackwardInReverseOrder) {
  const Mlp mlp;
  std::vector<int> order;
  const std::vector<GradientHook> hooks = ReportTo(order, mlp);
  for (int i = 0; i < 3; ++i) {
    order.clear();
    mlp.Loss().backward();
    EXPECT_THAT(order, ElementsAre(5, 4, 3, 2, 1, 0));
  }
}

TEST(GradientHookTest, TheGradientIsFinalWhenTheHookRuns) {
  const at::Tensor p = Parameter({3});
  std::vector<double> seen;
  const GradientHook hook(
      p, [&] { seen.push_back(p.grad().sum().item<double>()); });
  ((p * 2).sum() + (p * 5).sum()).backward();
  (p * 2).sum().backward();
  EXPECT_THAT(seen, ElementsAre(21, 27));
}

TEST(GradientHookTest, AParameterThatBackwardDoesNotReachIsNotReported) {
  const at::Tensor used = Parameter({1});
  const at::Tensor unused = Parameter({1});
  int calls = 0;
  const GradientHook hook(unused, [&] { ++calls; });
  used.sum().backward();
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(unused.grad().defined());
}

TEST(GradientHookTest, ADestroyedHookIsSilent) {
  const at::Tensor p = Parameter({1});
  int first = 0;
  int second = 0;
  std::optional<GradientHook> hook(std::in_place, p, [&] { ++first; });
  const GradientHook other(p, [&] { ++second; });
  p.sum().backward();
  hook.reset();
  p.sum().backward();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
}

TEST(GradientHookTest, AMovedHookStillReportsAndTheOneItReplacesDoesNot) {
  const at::Tensor p = Parameter({1});
  const at::Tensor q = Parameter({1});
  int p_calls = 0;
  int q_calls = 0;
  GradientHook hook(p, [&] { ++p_calls; });
  hook = GradientHook(q, [&] { ++q_calls; });
  const GradientHook moved(std::move(hook));
  (p + q).sum().backward();
  EXPECT_EQ(p_calls, 0);
  EXPECT_EQ(q_calls, 1);
}

TEST(GradientHookTest, ATensorWithoutAGradientOfItsOwnIsRefused) {
  const at::Tensor p = Parameter({1});
  EXPECT_THROW(GradientHook(at::ones({1}), [] {}),
               collectives::InvalidArgument);
  EXPECT_THROW(GradientHook(p * 2, [] {}), collectives::InvalidArgument);
  EXPECT_THROW(GradientHook(at::Tensor(), [] {}), collectives::InvalidArgument);
}

struct OwnException : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(GradientHookTest, AnExceptionComesOutOfBackwardAsItself) {
  const at::Tensor p = Parameter({1});
  bool throws = true;
  const GradientHook hook(p, [&] {
    if (throws) throw OwnException("from the hook");
  });
  EXPECT_THROW(p.sum().backward(), OwnException);
  throws = false;
  EXPECT_NO_THROW(p.sum().backward());
}

TEST(GradientHookTest, RunsOnTheThreadThatCallsBackward) {
  static thread_local int rank = -1;
  constexpr int kRanks = 8;
  std::vector<int> wrong(kRanks, 0);
  std::vector<int> calls(kRanks, 0);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      rank = r;
      const Mlp mlp;
      std::vector<GradientHook> hooks;
      for (const at::Tensor& p : mlp.parameters) {
        hooks.emplace_back(p, [&, r] {
          ++calls[r];
          wrong[r] += rank != r;
        });
      }
      for (int i = 0; i < 20; ++i) mlp.Loss().backward();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
  EXPECT_THAT(calls, ::testing::Each(6 * 20));
}

}  // namespace
}  // namespace trainsys
