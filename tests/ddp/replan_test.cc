// Buckets follow the reverse of registration first, and from the second
// synchronized backward on the order in which rank 0 got its gradients.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/timeline/overlap.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Record;
using collectives::RunRanksHere;
using ::testing::ElementsAre;
using torch::nn::Module;
using Order = std::vector<size_t>;

constexpr size_t kParameters = 4;

// Of its gradient: tells it apart in the records.
int64_t PaddedElems(size_t parameter) {
  return 16 * (1 + static_cast<int64_t>(parameter));
}

Tensors AddParameters(Module& module) {
  Tensors parameters;
  for (size_t p = 0; p < kParameters; ++p) {
    parameters.push_back(module.register_parameter(
        "p" + std::to_string(p), at::zeros({PaddedElems(p) - 3})));
  }
  return parameters;
}

// Multiples of 1/2, all different.
double Slope(size_t parameter, int rank, int step) {
  return 0.5 * (1 + static_cast<double>(parameter) + 10 * rank + 100 * step);
}

// The gradient of each parameter is its slope, and gets ready in that order.
at::Tensor Loss(const Tensors& parameters, const Order& ready, int rank,
                int step) {
  at::Tensor loss = at::zeros({});
  for (size_t i = ready.size(); i-- > 0;) {
    const size_t p = ready[i];
    loss = loss + (parameters[p] * Slope(p, rank, step)).sum();
  }
  return loss;
}

// The gradients, if each is the mean over two ranks of their steps' sum.
void ExpectMeans(const Tensors& parameters, const std::vector<int>& steps) {
  for (size_t p = 0; p < parameters.size(); ++p) {
    double mean = 0;
    for (int step : steps) mean += (Slope(p, 0, step) + Slope(p, 1, step)) / 2;
    EXPECT_TRUE(EqualBits({parameters[p].grad()},
                          {at::full(parameters[p].sizes(), mean)}));
  }
}

void Step(BucketedDDP& ddp, const Order& ready, int rank, int step) {
  ddp.BeginForward();
  Loss(ddp.parameters(), ready, rank, step).backward();
  ddp.FinishGradientSync();
}

// The parameters in the order of the buckets.
Order Planned(const BucketedDDP& ddp) {
  Order order;
  for (const Bucket& bucket : ddp.buckets()) {
    order.insert(order.end(), bucket.parameters.begin(),
                 bucket.parameters.end());
  }
  return order;
}

TEST(ReplanTest, BucketsFollowRegistrationFirstAndThenTheOrderSeen) {
  for (int64_t bucket_bytes : {1, 128, 1 << 20}) {
    RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
      Module module;
      AddParameters(module);
      BucketedDDP ddp(module, comm, {.bucket_bytes = bucket_bytes});
      const Order ready{1, 3, 0, 2};
      EXPECT_THAT(Planned(ddp), ElementsAre(3, 2, 1, 0));
      Step(ddp, ready, comm.rank(), 0);
      EXPECT_THAT(Planned(ddp), ElementsAre(3, 2, 1, 0));
      for (int step = 1; step < 4; ++step) {
        ddp.ZeroGrad();
        Step(ddp, ready, comm.rank(), step);
        EXPECT_EQ(Planned(ddp), ready);
        ExpectMeans(ddp.parameters(), {step});
      }
    });
  }
}

TEST(ReplanTest, RanksWithOtherOrdersUseThatOfRank0AndPostInIt) {
  const std::vector<Order> ready{
      {1, 3, 0, 2}, {2, 0, 3, 1}, {0, 1, 2, 3}, {3, 2, 1, 0}};
  const auto recorders = RunRanksHere({.ranks = 4}, [&](Communicator& comm) {
    Module module;
    AddParameters(module);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    for (int step = 0; step < 3; ++step) {
      ddp.ZeroGrad();
      Step(ddp, ready[static_cast<size_t>(comm.rank())], comm.rank(), step);
      EXPECT_EQ(Planned(ddp) == ready[0], step > 0);
      for (size_t p = 0; p < kParameters; ++p) {
        const double mean = (Slope(p, 0, step) + Slope(p, 3, step)) / 2;
        EXPECT_TRUE(EqualBits({ddp.parameters()[p].grad()},
                              {at::full(ddp.parameters()[p].sizes(), mean)}));
      }
    }
  });
  for (const auto& recorder : recorders) {
    const std::vector<Record> posted =
        BucketRecords(recorder, 0, std::numeric_limits<int64_t>::max());
    ASSERT_EQ(posted.size(), 3 * kParameters);
    for (size_t i = 0; i < posted.size(); ++i) {
      const size_t bucket = i % kParameters;
      EXPECT_EQ(posted[i].label, "bucket " + std::to_string(bucket));
      const size_t parameter =
          i < kParameters ? kParameters - 1 - bucket : ready[0][bucket];
      EXPECT_EQ(posted[i].elems, PaddedElems(parameter));
    }
  }
}

TEST(ReplanTest, TheOrderOfLaterBackwardsChangesNothing) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    Module module;
    AddParameters(module);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    const std::vector<Order> ready{
        {1, 3, 0, 2}, {0, 1, 2, 3}, {2, 0, 3, 1}, {3, 2, 1, 0}};
    for (int step = 0; step < 4; ++step) {
      ddp.ZeroGrad();
      Step(ddp, ready[static_cast<size_t>(step)], comm.rank(), step);
      ExpectMeans(ddp.parameters(), {step});
    }
    EXPECT_EQ(Planned(ddp), ready[0]);
    int num_plans = 0;
    for (const Record& record : comm.recorder().Records()) {
      num_plans += record.label == "order of gradients";
    }
    EXPECT_EQ(num_plans, 1);
  });
}

// In NoSync nothing is sent, so ranks could not agree on a plan there.
TEST(ReplanTest, MicroStepsUnderNoSyncAreNotTheOrderSeen) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    Module module;
    AddParameters(module);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 1});
    for (int micro_step = 0; micro_step < 2; ++micro_step) {
      const NoSync quiet(ddp);
      ddp.BeginForward();
      Loss(ddp.parameters(), {0, 1, 2, 3}, comm.rank(), micro_step).backward();
      EXPECT_THAT(Planned(ddp), ElementsAre(3, 2, 1, 0));
    }
    Step(ddp, {1, 3, 0, 2}, comm.rank(), 2);
    ExpectMeans(ddp.parameters(), {0, 1, 2});
    ddp.ZeroGrad();
    Step(ddp, {2, 0, 3, 1}, comm.rank(), 3);
    EXPECT_THAT(Planned(ddp), ElementsAre(1, 3, 0, 2));
  });
}

TEST(ReplanTest, GradientsFromNoSyncMoveIntoTheNewBuckets) {
  for (int64_t bucket_bytes : {1, 128, 1 << 20}) {
    RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
      Module module;
      AddParameters(module);
      BucketedDDP ddp(module, comm, {.bucket_bytes = bucket_bytes});
      const Order ready{1, 3, 0, 2};
      Step(ddp, ready, comm.rank(), 0);
      ddp.ZeroGrad();
      for (int micro_step = 1; micro_step < 4; ++micro_step) {
        std::optional<NoSync> quiet;
        if (micro_step < 3) quiet.emplace(ddp);
        ddp.BeginForward();
        Loss(ddp.parameters(), ready, comm.rank(), micro_step).backward();
      }
      ddp.FinishGradientSync();
      EXPECT_EQ(Planned(ddp), ready);
      ExpectMeans(ddp.parameters(), {1, 2, 3});
    });
  }
}

TEST(ReplanTest, GradientsThatWereNotDroppedMoveIntoTheNewBuckets) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    Module module;
    AddParameters(module);
    BucketedDDP ddp(module, comm, {.bucket_bytes = 128});
    for (int step = 0; step < 3; ++step) {
      Step(ddp, {1, 3, 0, 2}, comm.rank(), step);
    }
    // Of each rank: the mean so far, and its own on top.
    ExpectMeans(ddp.parameters(), {0, 1, 2});
  });
}

TEST(ReplanTest, ParametersThatRank0DidNotUseComeLast) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    Module module;
    AddParameters(module);
    BucketedDDP ddp(module, comm,
                    {.bucket_bytes = 1, .find_unused_parameters = true});
    const Order ready = comm.rank() == 0 ? Order{1, 3} : Order{0, 1, 2, 3};
    for (int step = 0; step < 2; ++step) {
      ddp.ZeroGrad();
      Step(ddp, ready, comm.rank(), step);
    }
    EXPECT_THAT(Planned(ddp), ElementsAre(1, 3, 2, 0));
  });
}

}  // namespace
}  // namespace trainsys
