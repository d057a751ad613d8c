// Segments to run plainly and checkpointed, for the tests beside this file.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "trainsys/random/rank_generator.h"
#include "trainsys/recompute/checkpoint.h"

namespace trainsys {

using Layer = std::function<at::Tensor(const at::Tensor&)>;
using Tensors = std::vector<at::Tensor>;

inline at::Tensor Parameter(at::IntArrayRef sizes) {
  return at::randn(sizes).mul_(0.1).set_requires_grad(true);
}

// x + Linear(hidden, width)(Dropout(GELU(Linear(width, hidden)(x))))
struct Block {
  explicit Block(int64_t width, int64_t hidden, double dropout = 0)
      : parameters{Parameter({hidden, width}), Parameter({hidden}),
                   Parameter({width, hidden}), Parameter({width})},
        dropout(dropout) {}

  // x: [rows, width]
  at::Tensor operator()(const at::Tensor& x) const {
    at::Tensor h = at::gelu(at::linear(x, parameters[0], parameters[1]));
    if (dropout > 0) h = at::dropout(h, dropout, /*train=*/true);
    return x + at::linear(h, parameters[2], parameters[3]);
  }

  Tensors parameters;
  double dropout;
};

enum class Mode { kPlain, kCheckpointed };

inline at::Tensor Apply(Mode mode, Layer layer, const at::Tensor& x) {
  return mode == Mode::kPlain ? layer(x) : Checkpoint(std::move(layer), x);
}

inline at::Tensor Loss(const at::Tensor& y) { return y.pow(2).mean(); }

inline Tensors ParametersOf(const std::vector<Block>& blocks) {
  Tensors all;
  for (const Block& block : blocks) {
    all.insert(all.end(), block.parameters.begin(), block.parameters.end());
  }
  return all;
}

inline Tensors TakeGradients(const Tensors& tensors) {
  Tensors gradients;
  for (const at::Tensor& t : tensors) {
    gradients.push_back(t.grad().defined() ? t.grad().clone() : at::Tensor());
    t.mutable_grad().reset();
  }
  return gradients;
}

inline void ExpectSameBits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(a[i].defined() && b[i].defined()) << "gradient " << i;
    EXPECT_TRUE(at::equal(a[i], b[i])) << "gradient " << i;
  }
}

// The gradients of x and of all parameters.
inline Tensors Gradients(Mode mode, const std::vector<Block>& blocks,
                         const at::Tensor& x) {
  at::Tensor y = x;
  for (const Block& block : blocks) y = Apply(mode, block, y);
  Loss(y).backward();
  Tensors all = ParametersOf(blocks);
  if (x.requires_grad()) all.push_back(x);
  return TakeGradients(all);
}

// Checkpoint(block 0, then Checkpoint(block 1, then Checkpoint(...)))
inline at::Tensor Nested(const std::vector<Block>& blocks, size_t first,
                         const at::Tensor& x) {
  if (first == blocks.size()) return x;
  return Checkpoint(
      [&blocks, first](const at::Tensor& t) {
        return Nested(blocks, first + 1, blocks[first](t));
      },
      x);
}

struct OwnException : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class CheckpointTest : public ::testing::Test {
 private:
  RankGeneratorScope generator_{MakeRankGenerator(7, 0, 0)};
};

}  // namespace trainsys
