#include "examples/exercise/checkpoint.h"

#include <torch/csrc/autograd/custom_function.h>  // Function

namespace exercise {

// To do: a torch::autograd::Function whose forward keeps x, and whose backward
// runs fn a second time, with gradients and with the same random numbers.
at::Tensor Checkpoint(const Segment& fn, const at::Tensor& x) { return fn(x); }

}  // namespace exercise
