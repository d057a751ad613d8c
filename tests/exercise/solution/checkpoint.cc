#include "tests/exercise/solution/checkpoint.h"

#include <ATen/core/Generator.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "trainsys/random/rank_generator.h"

namespace exercise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What the second forward needs beside x.
struct Kept final : torch::CustomClassHolder {
  Segment fn;
  at::Tensor random;  // the generator's state before the first forward
};

struct Recomputed final : torch::autograd::Function<Recomputed> {
  // libtorch calls it with gradients switched off: nothing in fn is saved.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const Segment& fn) {
    auto kept = c10::make_intrusive<Kept>();
    kept->fn = fn;
    kept->random = trainsys::CurrentGenerator().get_state();
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    context->save_for_backward({x});
    return fn(x);
  }

  static variable_list backward(AutogradContext* context,
                                variable_list output_gradients) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(
        context->saved_data["kept"].toCapsule());
    const at::Tensor saved = context->get_saved_variables()[0];
    at::Tensor x = saved.detach().requires_grad_(saved.requires_grad());
    at::Generator generator = trainsys::CurrentGenerator();
    const at::Tensor random_now = generator.get_state();
    generator.set_state(kept->random);
    at::Tensor y;
    {
      const c10::AutoGradMode with_gradients(true);
      y = kept->fn(x);
    }
    generator.set_state(random_now);
    y.backward(output_gradients[0]);  // to the parameters, and to x
    return {x.grad(), at::Tensor()};
  }
};

}  // namespace

at::Tensor Checkpoint(const Segment& fn, const at::Tensor& x) {
  return Recomputed::apply(x, fn);
}

}  // namespace exercise
