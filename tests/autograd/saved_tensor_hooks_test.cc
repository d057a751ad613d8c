#include "trainsys/autograd/saved_tensor_hooks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace trainsys {
namespace {

using torch::autograd::SavedVariable;

// Writes down what is packed and unpacked, and keeps the tensor.
class WritingHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit WritingHooks(std::string& log) : log_(log) {}
  void call_pack_hook(const at::Tensor& t) override {
    log_ += 'p';
    tensor_ = t.detach();
  }
  at::Tensor call_unpack_hook() override {
    log_ += 'u';
    return tensor_;
  }

 private:
  std::string& log_;
  at::Tensor tensor_;
};

SavedTensorHookFactory WriteTo(std::string& log) {
  return [&log] { return std::make_unique<WritingHooks>(log); };
}

at::Tensor Leaf() { return at::ones({4}).set_requires_grad(true); }

TEST(SavedTensorHookScopeTest, EverySavedTensorPassesItsHooks) {
  std::string log;
  const at::Tensor x = Leaf();
  const SavedTensorHookScope scope(WriteTo(log));
  const at::Tensor y = (x * x).exp();
  EXPECT_EQ(log, "ppp");
  y.sum().backward();
  EXPECT_EQ(log, "pppuuu");
  EXPECT_TRUE(at::allclose(x.grad(), 2 * x.detach() * at::exp(at::ones({4}))));
}

TEST(SavedTensorHookScopeTest, OnlyTheInnermostScopeIsAskedAndOnlyInItsLife) {
  std::string outer_log;
  std::string inner_log;
  const at::Tensor x = Leaf();
  {
    const SavedTensorHookScope outer(WriteTo(outer_log));
    {
      const SavedTensorHookScope inner(WriteTo(inner_log));
      x.exp();
    }
    EXPECT_EQ(outer_log, "");
    x.exp();
  }
  x.exp();
  EXPECT_EQ(inner_log, "p");
  EXPECT_EQ(outer_log, "p");
}

TEST(SavedTensorHookScopeTest, AFactoryMayLeaveATensorToLibtorch) {
  const at::Tensor x = Leaf();
  const SavedTensorHookScope scope([] { return nullptr; });
  x.exp().sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), x.detach().exp()));
}

TEST(OutsideHookScopeTest, HidesTheScopeAndThoseInsideIt) {
  std::string logs[3];
  const SavedTensorHookScope outer(WriteTo(logs[0]));
  const SavedTensorHookScope middle(WriteTo(logs[1]));
  const SavedTensorHookScope inner(WriteTo(logs[2]));
  {
    const OutsideHookScope outside(middle);
    Leaf().exp();
  }
  Leaf().exp();
  EXPECT_THAT(logs, ::testing::ElementsAre("p", "", "p"));
}

TEST(SavedTensorHookScopeTest, ThreadsDoNotSeeEachOthersScopes) {
  constexpr int kThreads = 8;
  std::vector<std::string> logs(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&log = logs[i], i] {
      for (int k = 0; k < 50; ++k) {
        const at::Tensor x = Leaf();
        if (i % 2 == 0) {
          const SavedTensorHookScope scope(WriteTo(log));
          x.exp().sum().backward();
        } else {
          x.exp().sum().backward();
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(logs[i].size(), i % 2 == 0 ? 100u : 0u) << "thread " << i;
  }
}

}  // namespace
}  // namespace trainsys
