// Random modules and training loops: BucketedDDP gives the bits of reference A.
//
// The environment variable RANDOM_MODULES says which seeds: "17" or "40-199".
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "tests/ddp/random_module.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::RunRanksHere;
using ::testing::Each;
using torch::nn::Module;

constexpr int kSteps = 3;

void PrepareGradients(const Tensors& parameters, BetweenSteps between) {
  for (const at::Tensor& p : parameters) {
    if (between == BetweenSteps::kZeroGrad) p.mutable_grad().reset();
    if (between == BetweenSteps::kZeroInPlace && p.grad().defined()) {
      p.mutable_grad().zero_();
    }
  }
}

void Descend(const Tensors& parameters) {
  const c10::AutoGradMode no_grad(false);
  for (at::Tensor p : parameters) {
    if (p.grad().defined()) p.sub_(p.grad(), 0.05);
  }
}

// Tied ones once.
Tensors Distinct(const Scenario& s, const Tensors& parameters) {
  Tensors distinct;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (s.layers[p / 2].tied_to == p / 2) distinct.push_back(parameters[p]);
  }
  return distinct;
}

// What reference A has after a step.
struct State {
  Tensors gradients;  // of all parameters
  Tensors parameters;
};

// A rank's own gradients, on top of what all ranks have.
Tensors LocalGradients(const Scenario& s, const Tensors& parameters, int step,
                       int rank, const Tensors& before) {
  for (size_t p = 0; p < parameters.size(); ++p) {
    parameters[p].mutable_grad() =
        before[p].defined() ? before[p].clone() : at::Tensor();
  }
  for (int m = 0; m < s.micro_steps; ++m) {
    RandomLoss(s, parameters, {step, m, rank}).backward();
  }
  return GradientsOf(parameters);
}

// One rank does the work of all, one after another: each adds up its own
// micro-steps, then ranks are added up in their order and divided once.
std::vector<State> TrainOneRank(const Scenario& s) {
  Module module;
  const Tensors parameters = AddRandomLayers(module, s, /*seed=*/0);
  std::vector<State> after;
  for (int step = 0; step < kSteps; ++step) {
    PrepareGradients(parameters, s.between);
    const Tensors before = GradientsOf(parameters);
    Tensors sums(parameters.size());
    for (int rank = 0; rank < s.ranks; ++rank) {
      const Tensors local = LocalGradients(s, parameters, step, rank, before);
      for (size_t p = 0; p < parameters.size(); ++p) {
        const at::Tensor& values =
            local[p].defined() ? local[p] : at::zeros_like(parameters[p]);
        sums[p] = rank == 0 ? values.clone() : sums[p].add(values);
      }
    }
    for (size_t p = 0; p < parameters.size(); ++p) {
      bool is_used = false;
      for (int rank = 0; rank < s.ranks; ++rank) {
        is_used = is_used || UsesParameter(s, p, step, rank);
      }
      const bool has_gradient = is_used && parameters[p].requires_grad();
      parameters[p].mutable_grad() =
          has_gradient ? sums[p].detach().div_(s.ranks) : at::Tensor();
    }
    Descend(Distinct(s, parameters));
    after.push_back({GradientsOf(parameters), Snapshot(parameters)});
  }
  return after;
}

// Result: where this rank differs from `expected`, or nothing.
std::string Train(const Scenario& s, Communicator& comm,
                  const std::vector<State>& expected) {
  Module module;
  const Tensors parameters =
      AddRandomLayers(module, s, /*seed=*/static_cast<uint64_t>(comm.rank()));
  BucketedDDP ddp(module, comm,
                  {.bucket_bytes = s.bucket_bytes,
                   .first_bucket_bytes = s.first_bucket_bytes,
                   .find_unused_parameters = true});
  for (int step = 0; step < kSteps; ++step) {
    PrepareGradients(ddp.parameters(), s.between);
    for (int m = 0; m < s.micro_steps; ++m) {
      std::optional<NoSync> quiet;
      if (m + 1 < s.micro_steps) quiet.emplace(ddp);
      ddp.BeginForward();
      RandomLoss(s, parameters, {step, m, comm.rank()}).backward();
    }
    ddp.FinishGradientSync();
    const std::string where = " in step " + std::to_string(step);
    if (!EqualBits(GradientsOf(parameters), expected[step].gradients)) {
      return "gradients" + where;
    }
    Descend(ddp.parameters());
    if (!EqualBits(parameters, expected[step].parameters)) {
      return "parameters" + where;
    }
  }
  return "";
}

std::vector<int> Seeds() {
  int first = 0, last = 39;
  if (const char* const text = std::getenv("RANDOM_MODULES")) {
    const int num_read = std::sscanf(text, "%d-%d", &first, &last);
    if (num_read == 1) last = first;
  }
  std::vector<int> seeds;
  for (int seed = first; seed <= last; ++seed) seeds.push_back(seed);
  return seeds;
}

class RandomModulesTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Seeds, RandomModulesTest, testing::ValuesIn(Seeds()),
                         [](const auto& info) {
                           return "seed" + std::to_string(info.param);
                         });

TEST_P(RandomModulesTest, TrainsToTheBitsOfOneRank) {
  const Scenario s = MakeScenario(static_cast<uint64_t>(GetParam()));
  SCOPED_TRACE("alone: RANDOM_MODULES=" + std::to_string(GetParam()) + "; " +
               Describe(s));
  const std::vector<State> expected = TrainOneRank(s);
  std::vector<std::string> differences(static_cast<size_t>(s.ranks));
  try {
    RunRanksHere({.ranks = s.ranks}, [&](Communicator& comm) {
      differences[static_cast<size_t>(comm.rank())] = Train(s, comm, expected);
    });
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
  EXPECT_THAT(differences, Each(""));
}

}  // namespace
}  // namespace trainsys
