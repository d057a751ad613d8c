// "The gradient of this parameter is ready", the event that data parallelism
// lives on.
//
// Example:
//   GradientHook hook(weight, [&] { bucket.MarkReady(weight_index); });
//   loss.backward();  // calls MarkReady once, weight.grad() is final there
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace at {
class Tensor;
}
namespace torch::autograd {
struct Node;
}

namespace trainsys {

// Calls `on_accumulated` each time a backward pass has added to the gradient
// of one leaf parameter: once per backward, however often the parameter was
// used. A parameter that backward does not reach is not reported.
//
// Order: the reverse of use in forward.
// Threads: the callback runs on the thread that called backward(). Construct
//   and destroy on that thread, outside backward.
// Errors: InvalidArgument where the parameter is not a leaf or requires no
//   gradient. What the callback throws comes out of backward() as itself.
class GradientHook {
 public:
  GradientHook(const at::Tensor& parameter,
               std::function<void()> on_accumulated);
  ~GradientHook();
  GradientHook(GradientHook&& other) noexcept;
  GradientHook& operator=(GradientHook&& other) noexcept;

  // Whether it still hears of `parameter`. It does not once somebody has given
  // the parameter other data, as torch::nn::Module::load does.
  bool IsOn(const at::Tensor& parameter) const;

 private:
  void Remove();

  // libtorch itself holds the accumulator only weakly: without this reference
  // it would be gone, and the hook with it, before the first backward.
  std::shared_ptr<torch::autograd::Node> accumulator_;  // null: moved from
  uintptr_t key_ = 0;
};

}  // namespace trainsys
