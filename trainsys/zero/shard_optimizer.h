// The optimizer's work on one shard of the parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "trainsys/optim/exact_sum.h"
#include "trainsys/optim/update.h"
#include "trainsys/zero/flat_parameters.h"
#include "trainsys/zero/parameter_group.h"

namespace trainsys {

// Part of a parameter's gradient. Shape: [elems], contiguous, of the
// parameter's dtype; undefined if there is no gradient. Units: elements.
using GradientPart =
    std::function<at::Tensor(size_t parameter, int64_t begin, int64_t elems)>;

// p.grad(), as it is.
// Errors: InvalidArgument for one that is unlike its parameter.
GradientPart GradientsInPlace(std::vector<at::Tensor> parameters);

// Those that are defined, in place.
void ZeroGradients(const std::vector<at::Tensor>& parameters);

// Keeps the state of the elements inside the shard, and updates them. An
// element's numbers do not depend on where the shard begins or ends.
//
// Shape: state is as many buffers of the shard's length as the group with the
// most moments needs.
// Threads: the rank's own thread.
// Errors: InvalidArgument as FlatParameters, GroupOfEach and OptimizerOptions
// have it.
class ShardOptimizer {
 public:
  // `parameters`: those of all groups, in the order of `plan`.
  ShardOptimizer(std::vector<at::Tensor> parameters,
                 std::vector<ParameterGroup> groups, ShardPlan plan, int rank);

  // Before parameters are used or updated; see FlatParameters::TakeBack.
  void TakeBack() { flat_.TakeBack(); }

  // Errors: InvalidArgument for options that Validate refuses, or of another
  // kind than at construction.
  void CheckOptions() const;

  // Updates what the shard has of those parameters, from their gradients times
  // `gradient_scale`. One without a gradient stays as it is, and its step count
  // too.
  // Errors: as `gradient` and as CheckOptions; nothing is written then.
  void Update(std::span<const size_t> parameters, const GradientPart& gradient,
              double gradient_scale);
  void UpdateAll(const GradientPart& gradient, double gradient_scale);

  // Adds the squares of the shard's gradients, in an order that neither the
  // shard's borders nor anything else can change. Each element of a parameter
  // counts once; padding never does.
  void AddSquares(const GradientPart& gradient, ExactSum& sum) const;

  std::vector<ParameterGroup>& groups() { return groups_; }
  const FlatParameters& flat() const { return flat_; }
  const std::vector<at::Tensor>& parameters() const {
    return flat_.parameters();
  }
  const ShardPlan& plan() const { return flat_.plan(); }
  int64_t StateBytes() const;

 private:
  // What of one parameter lies in the shard. Units: elements.
  struct Piece {
    size_t parameter = 0;
    int64_t begin = 0;
    int64_t elems = 0;
    at::Tensor param;
    std::array<at::Tensor, 2> moments;
    int64_t num_steps = 0;
  };

  void MakeMoments(int rank);
  static at::Tensor PartOf(const Piece& piece, const GradientPart& gradient) {
    return gradient(piece.parameter, piece.begin, piece.elems);
  }
  void UpdatePiece(Piece& piece, const at::Tensor& grad, double gradient_scale);

  std::vector<ParameterGroup> groups_;
  FlatParameters flat_;
  std::vector<size_t> group_of_;  // of each parameter
  std::vector<OptimizerOptions> options_at_first_;
  std::vector<at::Tensor> moments_;  // u8 [shard's bytes] each
  std::vector<Piece> pieces_;
  std::vector<std::optional<size_t>> piece_of_;  // of each parameter
};

}  // namespace trainsys
