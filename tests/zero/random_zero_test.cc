// Random modules and training loops: every way to share the optimizer's work
// gives the bits of DDP with an unsharded optimizer.
//
// The environment variable RANDOM_MODULES says which seeds: "17" or "40-199".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "tests/ddp/random_module.h"
#include "tests/zero/ways.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/optim/optimizer_options.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::RunRanksHere;
using ::testing::Each;

constexpr int kSteps = 4;  // buckets are planned again in the second

// What all ranks have after a step.
struct State {
  double grad_norm = 0;
  Tensors gradients;  // of all parameters, tied ones again
  Tensors parameters;
};

// Where the averages of the micro-steps are added up.
enum class Averaging { kOnce, kEachMicroStep };

OptimizerOptions OptionsOf(uint64_t seed, double weight_decay) {
  switch (seed % 4) {
    case 0:
      return AdamOptions{.lr = 3e-2, .weight_decay = weight_decay};
    case 1:
      return SGDOptions{.lr = 2e-2,
                        .momentum = 0.9,
                        .nesterov = seed % 8 == 1,
                        .weight_decay = weight_decay};
    default:
      return AdamWOptions{
          .lr = 1e-2, .beta2 = 0.95, .weight_decay = weight_decay};
  }
}

// Weights and biases, by the first letter of their names.
std::vector<ParameterGroup> GroupsOf(const BucketedDDP& ddp, uint64_t seed) {
  std::vector<ParameterGroup> groups{{{}, OptionsOf(seed, 0.1)},
                                     {{}, OptionsOf(seed, 0)}};
  for (size_t p = 0; p < ddp.parameters().size(); ++p) {
    const size_t group = ddp.names()[p][0] == 'w' ? 0 : 1;
    groups[group].parameters.push_back(ddp.parameters()[p]);
  }
  SetLr(groups[1].options, 5e-3);
  return groups;
}

// One step of a rank, up to the averages.
class Loop {
 public:
  Loop(const Scenario& s, uint64_t seed, const Way& way, Communicator& comm)
      : scenario_(s),
        comm_(comm),
        parameters_(AddRandomLayers(module_, s, /*seed=*/comm.rank())),
        ddp_(module_, comm,
             WithWay({.bucket_bytes = s.bucket_bytes,
                      .first_bucket_bytes = s.first_bucket_bytes,
                      .find_unused_parameters =
                          way.stepping != Stepping::kInBackward},
                     way)),
        optimizer_(MakeOptimizer(way, ddp_, comm, GroupsOf(ddp_, seed))) {}

  // Micro-steps under NoSync, but for the last.
  void AverageOnce(int step) {
    Freeze(step);
    optimizer_->ZeroGrad();
    ddp_.ZeroGrad();
    for (int m = 0; m < scenario_.micro_steps; ++m) {
      std::optional<NoSync> quiet;
      if (m + 1 < scenario_.micro_steps) quiet.emplace(ddp_);
      Backward(step, m);
    }
    ddp_.FinishGradientSync();
  }

  // Where the wrapper adds the averages up.
  void AverageEach(int step) {
    Freeze(step);
    optimizer_->ZeroGrad();
    for (int m = 0; m < scenario_.micro_steps; ++m) {
      Backward(step, m);
      ddp_.FinishGradientSync();
    }
  }

  // The same where it does not.
  void AddUpAverages(int step) {
    Freeze(step);
    Tensors sums(ddp_.planned().size());
    for (int m = 0; m < scenario_.micro_steps; ++m) {
      ddp_.ZeroGrad();
      Backward(step, m);
      ddp_.FinishGradientSync();
      const Tensors averages = GradientsOf(ddp_.planned());
      for (size_t p = 0; p < sums.size(); ++p) {
        if (!averages[p].defined()) continue;
        sums[p] = sums[p].defined() ? sums[p] + averages[p] : averages[p];
      }
    }
    for (size_t p = 0; p < sums.size(); ++p) {
      ddp_.planned()[p].mutable_grad() = sums[p];
    }
  }

  Optimizer& optimizer() { return *optimizer_; }
  const Tensors& parameters() const { return parameters_; }

 private:
  // In the last two steps others are frozen, but for the first weight, on which
  // every loss depends.
  void Freeze(int step) {
    for (size_t p = 1; p < ddp_.planned().size(); ++p) {
      const bool is_frozen = step >= 2 && (p + step) % 3 == 0;
      at::Tensor(ddp_.planned()[p]).set_requires_grad(!is_frozen);
    }
  }

  void Backward(int step, int micro_step) {
    ddp_.BeginForward();
    RandomLoss(scenario_, parameters_, {step, micro_step, comm_.rank()})
        .backward();
  }

  const Scenario& scenario_;
  Communicator& comm_;
  torch::nn::Module module_;
  Tensors parameters_;
  BucketedDDP ddp_;
  std::unique_ptr<Optimizer> optimizer_;
};

std::vector<State> TrainUnsharded(const Scenario& s, uint64_t seed,
                                  Averaging averaging) {
  std::vector<State> after;
  RunRanksHere({.ranks = s.ranks}, [&](Communicator& comm) {
    Loop loop(s, seed, {}, comm);
    for (int step = 0; step < kSteps; ++step) {
      if (averaging == Averaging::kOnce) {
        loop.AverageOnce(step);
      } else {
        loop.AddUpAverages(step);
      }
      const double norm = loop.optimizer().GradNorm();
      loop.optimizer().Step();
      if (comm.rank() > 0) continue;
      after.push_back(
          {norm, GradientsOf(loop.parameters()), Snapshot(loop.parameters())});
    }
  });
  return after;
}

// As far as this rank has them.
bool HasEqualGradients(const Tensors& parameters, const Tensors& expected) {
  for (size_t p = 0; p < parameters.size(); ++p) {
    const at::Tensor& grad = parameters[p].grad();
    if (grad.defined() && !EqualBits({grad}, {expected[p]})) return false;
  }
  return true;
}

// Result: where this rank differs from `expected`, or nothing.
std::string Train(const Scenario& s, uint64_t seed, const Way& way,
                  Communicator& comm, const std::vector<State>& expected) {
  Loop loop(s, seed, way, comm);
  for (int step = 0; step < kSteps; ++step) {
    if (way.sharding == GradientSharding::kStored) {
      loop.AverageEach(step);
    } else {
      loop.AverageOnce(step);
    }
    const State& state = expected[static_cast<size_t>(step)];
    const std::string where = " in step " + std::to_string(step);
    if (!HasEqualGradients(loop.parameters(), state.gradients)) {
      return "gradients" + where;
    }
    if (way.stepping != Stepping::kInBackward &&
        loop.optimizer().GradNorm() != state.grad_norm) {
      return "norm" + where;
    }
    loop.optimizer().Step();
    if (!EqualBits(loop.parameters(), state.parameters)) {
      return "parameters" + where;
    }
  }
  return "";
}

void ExpectBits(const Scenario& s, uint64_t seed, const Way& way,
                const std::vector<State>& expected) {
  SCOPED_TRACE(Name(way));
  std::vector<std::string> differences(static_cast<size_t>(s.ranks));
  try {
    RunRanksHere({.ranks = s.ranks}, [&](Communicator& comm) {
      differences[static_cast<size_t>(comm.rank())] =
          Train(s, seed, way, comm, expected);
    });
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
  EXPECT_THAT(differences, Each(""));
}

// What stepping inside backward takes: every parameter used, in one backward.
Scenario WithAllUsed(Scenario s) {
  s.skips_layers = false;
  s.micro_steps = 1;
  for (Layer& layer : s.layers) layer.is_never_used = false;
  return s;
}

std::vector<int> Seeds() {
  int first = 0, last = 19;
  if (const char* const text = std::getenv("RANDOM_MODULES")) {
    const int num_read = std::sscanf(text, "%d-%d", &first, &last);
    if (num_read == 1) last = first;
  }
  std::vector<int> seeds;
  for (int seed = first; seed <= last; ++seed) seeds.push_back(seed);
  return seeds;
}

class RandomZeroTest : public testing::TestWithParam<int> {
 protected:
  RandomZeroTest()
      : seed_(static_cast<uint64_t>(GetParam())),
        scenario_(MakeScenario(seed_)) {
    scenario_.between = BetweenSteps::kZeroGrad;
  }
  std::string Trace(const Scenario& s) const {
    return "alone: RANDOM_MODULES=" + std::to_string(seed_) + "; " +
           Describe(s);
  }

  const uint64_t seed_;
  Scenario scenario_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, RandomZeroTest, testing::ValuesIn(Seeds()),
                         [](const auto& info) {
                           return "seed" + std::to_string(info.param);
                         });

TEST_P(RandomZeroTest, SteppingAfterBackwardGivesTheBitsOfUnshardedRanks) {
  SCOPED_TRACE(Trace(scenario_));
  const auto once = TrainUnsharded(scenario_, seed_, Averaging::kOnce);
  const auto each = TrainUnsharded(scenario_, seed_, Averaging::kEachMicroStep);
  for (Stepping stepping : {Stepping::kOnGradients, Stepping::kAfterBackward}) {
    for (const Way& way : WaysOf(stepping)) {
      const bool is_stored = way.sharding == GradientSharding::kStored;
      ExpectBits(scenario_, seed_, way, is_stored ? each : once);
    }
  }
}

TEST_P(RandomZeroTest, SteppingInsideBackwardGivesTheBitsOfUnshardedRanks) {
  const Scenario s = WithAllUsed(scenario_);
  SCOPED_TRACE(Trace(s));
  const auto expected = TrainUnsharded(s, seed_, Averaging::kOnce);
  for (const Way& way : WaysOf(Stepping::kInBackward)) {
    ExpectBits(s, seed_, way, expected);
  }
}

}  // namespace
}  // namespace trainsys
