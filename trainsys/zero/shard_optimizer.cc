#include "trainsys/zero/shard_optimizer.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "collectives/errors.h"
#include "trainsys/autograd/gradient_like.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/optim/sum_of_squares.h"
#include "trainsys/tensor/tensor_memory.h"
#include "trainsys/zero/update_on_device.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;

int MostMoments(const std::vector<ParameterGroup>& groups) {
  int most = 0;
  for (const ParameterGroup& group : groups) {
    Validate(group.options);
    most = std::max(most, NumMoments(group.options));
  }
  return most;
}

template <typename T>
std::span<T> SpanOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr<std::remove_const_t<T>>(),
          static_cast<size_t>(tensor.numel())};
}

template <typename T>
Elements<T> ElementsOf(const at::Tensor& param, const at::Tensor& grad,
                       const std::array<at::Tensor, 2>& moments) {
  return {SpanOf<T>(param),
          SpanOf<const T>(grad),
          {SpanOf<T>(moments[0]), SpanOf<T>(moments[1])}};
}

}  // namespace

GradientPart GradientsInPlace(std::vector<at::Tensor> parameters) {
  return [parameters = std::move(parameters)](size_t p, int64_t begin,
                                              int64_t elems) -> at::Tensor {
    const at::Tensor& grad = parameters[p].grad();
    if (!grad.defined()) return {};
    RefuseUnlike(grad, parameters[p]);
    return AliasOf(grad.detach().contiguous(), begin, {elems});
  };
}

void ZeroGradients(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& p : parameters) {
    if (p.grad().defined()) p.grad().zero_();
  }
}

ShardOptimizer::ShardOptimizer(std::vector<at::Tensor> parameters,
                               std::vector<ParameterGroup> groups,
                               ShardPlan plan, int rank)
    : groups_(std::move(groups)),
      flat_(std::move(parameters), std::move(plan)),
      group_of_(GroupOfEach(flat_.parameters(), groups_)) {
  for (const ParameterGroup& group : groups_) {
    options_at_first_.push_back(group.options);
  }
  MakeMoments(rank);
}

void ShardOptimizer::MakeMoments(int rank) {
  const Shard& shard = plan().shards[static_cast<size_t>(rank)];
  for (int i = 0; i < MostMoments(groups_); ++i) {
    moments_.push_back(at::zeros({shard.bytes}, flat_.flat().options()));
  }
  int64_t padding = shard.bytes;
  piece_of_.resize(parameters().size());
  for (const ShardPiece& in_bytes : plan().PiecesOf(rank)) {
    padding -= in_bytes.bytes;
    const at::Tensor& p = parameters()[in_bytes.tensor];
    const auto elem_bytes = static_cast<int64_t>(p.element_size());
    Piece piece{in_bytes.tensor,
                in_bytes.begin / elem_bytes,
                in_bytes.bytes / elem_bytes,
                {},
                {},
                0};
    const auto part = [&](const at::Tensor& bytes, int64_t begin) {
      return AliasOfBytes(bytes, begin, p.scalar_type(), {piece.elems});
    };
    piece.param = part(flat_.flat(), shard.begin + in_bytes.in_shard);
    for (size_t i = 0; i < moments_.size(); ++i) {
      piece.moments[i] = part(moments_[i], in_bytes.in_shard);
    }
    piece_of_[piece.parameter] = pieces_.size();
    pieces_.push_back(std::move(piece));
  }
  for (const at::Tensor& moment : moments_) {
    Attribute(moment, MemoryCategory::kOptimizerState, padding);
  }
}

void ShardOptimizer::CheckOptions() const {
  if (groups_.size() != options_at_first_.size()) {
    throw InvalidArgument(
        std::to_string(groups_.size()) +
        " parameter groups now, expected as at construction: " +
        std::to_string(options_at_first_.size()));
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const OptimizerOptions& now = groups_[g].options;
    const OptimizerOptions& first = options_at_first_[g];
    Validate(now);
    if (now.index() != first.index() || NumMoments(now) != NumMoments(first)) {
      throw InvalidArgument(
          "group " + std::to_string(g) + " is " + NameOf(now) + " with " +
          std::to_string(NumMoments(now)) +
          " moments now, expected as at construction: " + NameOf(first) +
          " with " + std::to_string(NumMoments(first)));
    }
  }
}

void ShardOptimizer::UpdateAll(const GradientPart& gradient,
                               double gradient_scale) {
  std::vector<size_t> all(parameters().size());
  std::iota(all.begin(), all.end(), size_t{0});
  Update(all, gradient, gradient_scale);
}

void ShardOptimizer::Update(std::span<const size_t> parameters,
                            const GradientPart& gradient,
                            double gradient_scale) {
  CheckOptions();
  std::vector<std::pair<size_t, at::Tensor>> gradients;  // of pieces
  for (size_t p : parameters) {
    if (!piece_of_[p]) continue;
    at::Tensor grad = PartOf(pieces_[*piece_of_[p]], gradient);
    if (grad.defined()) gradients.emplace_back(*piece_of_[p], std::move(grad));
  }
  for (const auto& [piece, grad] : gradients) {
    UpdatePiece(pieces_[piece], grad, gradient_scale);
  }
}

void ShardOptimizer::UpdatePiece(Piece& piece, const at::Tensor& grad,
                                 double gradient_scale) {
  const OptimizerOptions& options = groups_[group_of_[piece.parameter]].options;
  const int64_t step = ++piece.num_steps;
  if (!piece.param.is_cpu()) {
    UpdateOnDevice(options, step, gradient_scale, piece.param, grad,
                   piece.moments);
  } else if (piece.param.scalar_type() == at::kFloat) {
    UpdateElements(options, step, gradient_scale,
                   ElementsOf<float>(piece.param, grad, piece.moments));
  } else {
    UpdateElements(options, step, gradient_scale,
                   ElementsOf<double>(piece.param, grad, piece.moments));
  }
  MarkWritten(parameters()[piece.parameter]);
}

void ShardOptimizer::AddSquares(const GradientPart& gradient,
                                ExactSum& sum) const {
  for (const Piece& piece : pieces_) {
    at::Tensor grad = PartOf(piece, gradient);
    if (!grad.defined()) continue;
    grad = grad.cpu();
    if (grad.scalar_type() == at::kFloat) {
      trainsys::AddSquares(SpanOf<const float>(grad), sum);
    } else {
      trainsys::AddSquares(SpanOf<const double>(grad), sum);
    }
  }
}

int64_t ShardOptimizer::StateBytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& moment : moments_) {
    bytes += static_cast<int64_t>(moment.storage().nbytes());
  }
  return bytes;
}

}  // namespace trainsys
