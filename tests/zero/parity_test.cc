// Ten optimizer steps of one module, however the ranks share the work: the bits
// of reference A, and of libtorch's AdamW on the whole batch nearly.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "tests/zero/ways.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/optim/optimizer_options.h"
#include "trainsys/proof/references.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/zero/flat_optimizer.h"
#include "trainsys/zero/parameter_group.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::RunRanksHere;

constexpr int64_t kSteps = 10;

enum class Kind {
  kF32,
  kF64,
  kMixed,       // what is in the middle is f64
  kOneElement,  // each tensor: 5 elements in all, fewer than some ranks
};

enum class Rule { kAdamW, kAdam, kMomentum };

// Three layers tanh(x w + b), of which the last is the first again; in the
// middle a frozen parameter and one without elements. B: batch, W: width.
// Registered in an order that is not that of use: buckets are planned again.
class TiedModel : public torch::nn::Module {
 public:
  TiedModel(Kind kind, uint64_t seed) {
    width_ = kind == Kind::kOneElement ? 1 : 5;
    const auto outer = kind == Kind::kF64 ? at::kDouble : at::kFloat;
    const auto middle = kind == Kind::kMixed ? at::kDouble : outer;
    tied_b_ = Add("last_b", 10 * seed, {width_}, outer);
    middle_w_ = Add("middle_w", 10 * seed + 1, {width_, width_}, middle);
    empty_ = Add("empty", 10 * seed + 2, {0, 8}, outer);
    tied_w_ = Add("last_w", 10 * seed + 3, {width_, width_}, outer);
    frozen_ = Add("frozen", 10 * seed + 4, {width_}, middle, false);
    middle_b_ = Add("middle_b", 10 * seed + 5, {width_}, middle);
    scale_ = Add("scale", 10 * seed + 6, {}, middle);
    register_parameter("first_w", tied_w_);
    register_parameter("first_b", tied_b_);
  }

  // Tied ones once.
  Tensors All() const {
    return {tied_b_, middle_w_, empty_, tied_w_, frozen_, middle_b_, scale_};
  }
  Tensors Decayed() const { return {tied_w_, middle_w_, empty_}; }
  Tensors Undecayed() const { return {tied_b_, middle_b_, scale_}; }

  // Mean over the samples. Shape: x [B, W]
  at::Tensor Loss(const at::Tensor& x) const {
    at::Tensor h = (at::matmul(x, tied_w_) + tied_b_).tanh();
    h = h.to(middle_w_.scalar_type()) * frozen_;
    h = (at::matmul(h, middle_w_) + middle_b_).tanh() * scale_;
    h = (at::matmul(h.to(x.scalar_type()), tied_w_) + tied_b_).tanh();
    const at::Tensor nothing =
        at::matmul(at::zeros({x.size(0), 0}, x.options()), empty_);
    return h.square().sum(1).mean() + nothing.sum();
  }
  // Of samples of that rank alone. Shape: [2, W]
  at::Tensor Samples(int64_t step, int rank) const {
    return Random(1000 + static_cast<uint64_t>(16 * step + rank), {2, width_},
                  tied_w_.scalar_type());
  }

 private:
  at::Tensor Add(const std::string& name, uint64_t seed,
                 const std::vector<int64_t>& sizes, at::ScalarType dtype,
                 bool is_trained = true) {
    return register_parameter(name, Random(seed, sizes, dtype) * 0.5,
                              is_trained);
  }

  int64_t width_ = 0;
  at::Tensor tied_w_, tied_b_, middle_w_, middle_b_, scale_, empty_, frozen_;
};

std::vector<ParameterGroup> GroupsOf(const TiedModel& model, Rule rule) {
  OptimizerOptions decayed, undecayed;
  switch (rule) {
    case Rule::kAdamW:
      decayed = AdamWOptions{.lr = 2e-2, .beta2 = 0.95, .weight_decay = 0.1};
      undecayed = AdamWOptions{
          .lr = 5e-3, .beta1 = 0.8, .beta2 = 0.99, .weight_decay = 0};
      break;
    case Rule::kAdam:
      decayed = AdamOptions{.lr = 2e-2, .beta2 = 0.95, .weight_decay = 0.1};
      undecayed = AdamOptions{.lr = 5e-3, .beta1 = 0.8, .beta2 = 0.99};
      break;
    case Rule::kMomentum:
      decayed = SGDOptions{.lr = 2e-2, .momentum = 0.9, .weight_decay = 0.1};
      undecayed = SGDOptions{.lr = 5e-2, .momentum = 0.5, .nesterov = true};
      break;
  }
  return {{model.Decayed(), decayed}, {model.Undecayed(), undecayed}};
}

// Of all parameters after the last step.
Tensors TrainOneRank(int ranks, Kind kind, Rule rule) {
  const TiedModel model(kind, /*seed=*/0);
  FlatOptimizer optimizer(GroupsOf(model, rule));
  TrainInMicroSteps(model.All(), optimizer, kSteps, ranks,
                    [&](int64_t step, int rank) {
                      return model.Loss(model.Samples(step, rank));
                    });
  return Snapshot(model.All());
}

const Tensors& Expected(int ranks, Kind kind, Rule rule) {
  static std::map<std::tuple<int, Kind, Rule>, Tensors> known;
  Tensors& expected = known[{ranks, kind, rule}];
  if (expected.empty()) expected = TrainOneRank(ranks, kind, rule);
  return expected;
}

// Three buckets at least, and others from the second step on.
const BucketedDDPOptions kOptions{.bucket_bytes = 200,
                                  .first_bucket_bytes = 100};

std::vector<std::vector<size_t>> OrderOf(const BucketedDDP& ddp) {
  std::vector<std::vector<size_t>> order;
  for (const Bucket& bucket : ddp.buckets()) {
    order.push_back(bucket.parameters);
  }
  return order;
}

Tensors TrainOnRank(Communicator& comm, Kind kind, Rule rule, const Way& way) {
  TiedModel model(kind, /*seed=*/static_cast<uint64_t>(comm.rank()));
  BucketedDDP ddp(model, comm, WithWay(kOptions, way));
  const auto optimizer = MakeOptimizer(way, ddp, comm, GroupsOf(model, rule));
  const auto planned = OrderOf(ddp);
  for (int64_t step = 0; step < kSteps; ++step) {
    optimizer->ZeroGrad();
    ddp.ZeroGrad();
    ddp.BeginForward();
    model.Loss(model.Samples(step, comm.rank())).backward();
    ddp.FinishGradientSync();
    optimizer->Step();
  }
  EXPECT_GE(ddp.buckets().size(), 3);
  EXPECT_NE(OrderOf(ddp), planned);
  return Snapshot(model.All());
}

struct Case {
  int ranks = 1;
  Kind kind = Kind::kF32;
  Way way;
  Rule rule = Rule::kAdamW;
};

std::string NameOf(const Case& c) {
  const char* const kinds[] = {"f32", "f64", "f32_and_f64", "one_element"};
  const char* const rules[] = {"adamw", "adam", "momentum"};
  return "ranks" + std::to_string(c.ranks) + "_" +
         kinds[static_cast<size_t>(c.kind)] + "_" +
         rules[static_cast<size_t>(c.rule)] + "_" + Name(c.way);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Way& way : AllWays()) {
    for (int ranks : {1, 2, 3, 4, 5, 7, 8}) {
      cases.push_back({ranks, Kind::kF32, way});
    }
    for (int ranks : {2, 3, 8}) {
      cases.push_back({ranks, Kind::kMixed, way});
      cases.push_back({ranks, Kind::kOneElement, way});
    }
    if (way.partition == Partition::kFlat) continue;
    for (Rule rule : {Rule::kAdam, Rule::kMomentum}) {
      cases.push_back({3, Kind::kF32, way, rule});
    }
  }
  return cases;
}

void PrintTo(const Case& c, std::ostream* out) { *out << NameOf(c); }

class ParityTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Ways, ParityTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return NameOf(info.param); });

TEST_P(ParityTest, TenStepsEndInTheBitsOfOneRankInMicroSteps) {
  const Case& c = GetParam();
  const Tensors& expected = Expected(c.ranks, c.kind, c.rule);
  RunRanksHere({.ranks = c.ranks}, [&](Communicator& comm) {
    const Tensors trained = TrainOnRank(comm, c.kind, c.rule, c.way);
    for (size_t p = 0; p < trained.size(); ++p) {
      EXPECT_TRUE(EqualBits({trained[p]}, {expected[p]}))
          << "rank " << comm.rank() << ", parameter " << p;
      EXPECT_EQ(trained[p].sizes(), expected[p].sizes());
    }
  });
}

torch::optim::OptimizerParamGroup ForLibtorch(const ParameterGroup& group) {
  const auto& o = std::get<AdamWOptions>(group.options);
  return {group.parameters, std::make_unique<torch::optim::AdamWOptions>(
                                torch::optim::AdamWOptions(o.lr)
                                    .betas({o.beta1, o.beta2})
                                    .eps(o.eps)
                                    .weight_decay(o.weight_decay))};
}

// Of reference B, after the last step.
Tensors TrainByLibtorch(int ranks, Kind kind) {
  const TiedModel model(kind, /*seed=*/0);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const ParameterGroup& group : GroupsOf(model, Rule::kAdamW)) {
    groups.push_back(ForLibtorch(group));
  }
  torch::optim::AdamW optimizer(groups);
  for (int64_t step = 0; step < kSteps; ++step) {
    Tensors batch;
    for (int rank = 0; rank < ranks; ++rank) {
      batch.push_back(model.Samples(step, rank));
    }
    optimizer.zero_grad();
    model.Loss(at::cat(batch)).backward();
    optimizer.step();
  }
  return Snapshot(model.All());
}

// And so is every way, which has the same bits.
TEST(ParityTest, OneRankInMicroStepsIsNearLibtorchOnTheWholeBatch) {
  for (Kind kind : {Kind::kF32, Kind::kF64, Kind::kMixed, Kind::kOneElement}) {
    const Tensors before = TiedModel(kind, /*seed=*/0).All();
    for (int ranks : {1, 2, 3, 4, 5, 7, 8}) {
      SCOPED_TRACE(NameOf({ranks, kind, {}}));
      const Tensors& expected = Expected(ranks, kind, Rule::kAdamW);
      EXPECT_LT(MaxDifference(TrainByLibtorch(ranks, kind), expected),
                kind == Kind::kF64 ? 1e-12 : 1e-4);
      EXPECT_GT(MaxDifference(before, expected), 0.05) << "it does train";
    }
  }
}

// -0 + -0 is -0, but -0 + 0 would be 0.
TEST(ParityTest, ARankThatDoesNotUseAParameterChangesNoBitOfItsGradient) {
  for (const Way& way : WaysOf(Stepping::kAfterBackward)) {
    if (way.partition != Partition::kByTensor) continue;
    RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
      torch::nn::Module module;
      const at::Tensor always =
          module.register_parameter("always", Random(1, {3}));
      const at::Tensor rarely =
          module.register_parameter("rarely", Random(2, {3}));
      BucketedDDP ddp(module, comm,
                      WithWay({.find_unused_parameters = true}, way));
      ddp.BeginForward();
      at::Tensor loss = always.sum();
      if (comm.rank() == 0) loss = loss + (rarely * -0.0).sum();
      loss.backward();
      ddp.FinishGradientSync();
      if (comm.rank() == 0) return;  // the other one owns it
      const at::Tensor minus_zeros = at::full({3}, -0.0f);
      EXPECT_TRUE(EqualBits({rarely.grad()}, {minus_zeros})) << Name(way);
    });
  }
}

}  // namespace
}  // namespace trainsys
