// What each way to share the optimizer's work sends, by the recorder.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/call.h"
#include "collectives/record/recorder.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "tests/zero/ways.h"
#include "trainsys/budget/traffic.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/optim/optimizer_options.h"
#include "trainsys/tensor/flat_layout.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Operation;
using collectives::Record;
using collectives::RunRanksHere;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int64_t kBucketBytes = 600;
constexpr int kMicroSteps = 3;

// Every tensor, bucket and shard of whole tensors can be dealt out to 2, 3 or 4
// ranks without a rest.
const std::vector<int64_t> kEven = {48, 48, 96, 192};
const std::vector<int64_t> kUneven = {5, 100, 0, 1, 33, 7, 11, 200};

// Gradients come in the reverse of registration: so the plan stays.
class Rank {
 public:
  Rank(Communicator& comm, const std::vector<int64_t>& elems, const Way& way,
       BucketedDDPOptions options = {})
      : comm_(comm),
        parameters_(AddParameters(elems)),
        buffer_(module_.register_buffer("buffer", at::ones({2}))),
        ddp_(module_, comm, WithWay(WithBuckets(std::move(options)), way)),
        optimizer_(MakeOptimizer(way, ddp_, comm,
                                 {{parameters_, AdamWOptions{.lr = 0.5}}})) {}

  void MicroStep() {
    ddp_.BeginForward();
    at::Tensor loss = at::zeros({});
    for (const at::Tensor& p : parameters_) {
      loss = loss + p.sum() * (1 + comm_.rank());
    }
    loss.backward();
  }
  BucketedDDP& ddp() { return ddp_; }
  Optimizer& optimizer() { return *optimizer_; }

  // Since it was last asked.
  std::vector<Record> NewRecords() {
    const std::vector<Record> all = comm_.recorder().Records();
    const auto begin = all.begin() + static_cast<int64_t>(num_seen_);
    num_seen_ = all.size();
    return {begin, all.end()};
  }

 private:
  static BucketedDDPOptions WithBuckets(BucketedDDPOptions options) {
    options.bucket_bytes = kBucketBytes;
    return options;
  }
  Tensors AddParameters(const std::vector<int64_t>& elems) {
    Tensors parameters;
    for (size_t p = 0; p < elems.size(); ++p) {
      parameters.push_back(module_.register_parameter(
          "p" + std::to_string(p), at::full({elems[p]}, 1.0 + p)));
    }
    return parameters;
  }

  Communicator& comm_;
  torch::nn::Module module_;
  Tensors parameters_;
  at::Tensor buffer_;
  BucketedDDP ddp_;
  std::unique_ptr<Optimizer> optimizer_;
  size_t num_seen_ = 0;
};

int MicroStepsOf(const Way& way) {
  return way.stepping == Stepping::kInBackward ? 1 : kMicroSteps;
}

void Step(Rank& rank, const Way& way) {
  const int micro_steps = MicroStepsOf(way);
  rank.optimizer().ZeroGrad();
  rank.ddp().ZeroGrad();
  for (int m = 0; m < micro_steps; ++m) {
    const bool is_last = m + 1 == micro_steps;
    const bool is_each = way.sharding == GradientSharding::kStored;
    std::optional<NoSync> quiet;
    if (!is_last && !is_each) quiet.emplace(rank.ddp());
    rank.MicroStep();
    if (is_last || is_each) rank.ddp().FinishGradientSync();
  }
  rank.optimizer().Step();
}

// What was sent for gradients, or for parameters.
struct Sent {
  int64_t bytes = 0;
  int64_t num_collectives = 0;
  std::set<Operation> operations;
};

Sent SentFor(const std::vector<Record>& records, const std::string& label) {
  Sent sent;
  for (const Record& record : records) {
    if (record.label.rfind(label, 0) != 0) continue;
    sent.bytes += record.sent_bytes;
    ++sent.num_collectives;
    sent.operations.insert(record.operation);
  }
  return sent;
}

int StageOf(const Way& way) {
  if (way.sharding == GradientSharding::kStored) return 2;
  return way.stepping == Stepping::kUnsharded ? 0 : 1;
}

StepTraffic TrafficOf(const std::vector<int64_t>& elems, int ranks,
                      const Way& way) {
  StatesOptions options{.zero_stage = StageOf(way),
                        .partition = way.partition,
                        .ranks = ranks,
                        .bucket_bytes = kBucketBytes};
  if (way.sharding == GradientSharding::kReduced) {
    options.reduction = GradientReduction::kReduceScatter;
  }
  return StepTrafficOf(elems, options, MicroStepsOf(way));
}

Operation ReductionOf(const Way& way) {
  return way.sharding == GradientSharding::kNone ? Operation::kAllReduce
                                                 : Operation::kReduceScatter;
}

Operation GatherOf(const Way& way) {
  const bool is_one = way.partition == Partition::kFlat &&
                      way.stepping != Stepping::kInBackward;
  return is_one ? Operation::kAllGather : Operation::kBroadcast;
}

class VolumesTest : public testing::TestWithParam<std::tuple<int, Way>> {
 protected:
  const int ranks_ = std::get<0>(GetParam());
  const Way way_ = std::get<1>(GetParam());
};

std::string NameOf(int ranks, const Way& way) {
  return "ranks" + std::to_string(ranks) + "_" + Name(way);
}

INSTANTIATE_TEST_SUITE_P(Ways, VolumesTest,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::ValuesIn(AllWays())),
                         [](const auto& info) {
                           return NameOf(std::get<0>(info.param),
                                         std::get<1>(info.param));
                         });

// To the byte; but broadcasts of single buckets' parameters are rounded down
// one by one, where the plan has fewer of them.
TEST_P(VolumesTest, EveryStepSendsWhatThePlanSays) {
  for (const auto& elems : {kEven, kUneven}) {
    const StepTraffic traffic = TrafficOf(elems, ranks_, way_);
    RunRanksHere({.ranks = ranks_}, [&](Communicator& comm) {
      Rank rank(comm, elems, way_);
      rank.NewRecords();
      for (int step = 0; step < 3; ++step) {
        Step(rank, way_);
        const std::vector<Record> records = rank.NewRecords();
        EXPECT_EQ(SentFor(records, "bucket ").bytes, traffic.gradients);
        const Sent parameters = SentFor(records, "parameters");
        if (way_.stepping == Stepping::kInBackward) {
          EXPECT_LE(std::abs(parameters.bytes - traffic.parameters),
                    parameters.num_collectives);
        } else {
          EXPECT_EQ(parameters.bytes, traffic.parameters);
        }
      }
    });
  }
}

// Of M micro-steps: 2 (N-1)/N P for an all-reduce, and for the other two one
// less; M for ZeRO-2's reduce-scatters; and 1 for the updated parameters.
TEST_P(VolumesTest, AStepSendsThePublishedMultipleOfTheParameters) {
  int64_t bytes = 0;
  for (int64_t elems : kEven) bytes += AlignedElems(elems, 4) * 4;
  const int64_t unit = bytes * (ranks_ - 1) / ranks_;
  int64_t units = way_.stepping == Stepping::kUnsharded ? 0 : 1;
  switch (way_.sharding) {
    case GradientSharding::kNone:
      units += 2;
      break;
    case GradientSharding::kReduced:
      units += 1;
      break;
    case GradientSharding::kStored:
      units += MicroStepsOf(way_);
      break;
  }
  RunRanksHere({.ranks = ranks_}, [&](Communicator& comm) {
    Rank rank(comm, kEven, way_);
    rank.NewRecords();
    Step(rank, way_);
    const std::vector<Record> records = rank.NewRecords();
    const Sent gradients = SentFor(records, "bucket ");
    const Sent parameters = SentFor(records, "parameters");
    EXPECT_GE(gradients.num_collectives, 2);
    const int64_t sent = gradients.bytes + parameters.bytes;
    if (way_.stepping == Stepping::kInBackward) {
      EXPECT_LE(sent, units * unit);
      EXPECT_GE(sent, units * unit - parameters.num_collectives);
    } else {
      EXPECT_EQ(sent, units * unit);
    }
  });
}

TEST_P(VolumesTest, GradientsAndParametersTravelByNoOtherCollective) {
  RunRanksHere({.ranks = ranks_}, [&](Communicator& comm) {
    Rank rank(comm, kUneven, way_);
    rank.NewRecords();
    Step(rank, way_);
    const std::vector<Record> records = rank.NewRecords();
    EXPECT_THAT(SentFor(records, "bucket ").operations,
                UnorderedElementsAre(ReductionOf(way_)));
    if (way_.stepping == Stepping::kUnsharded) {
      EXPECT_THAT(SentFor(records, "parameters").operations, IsEmpty());
    } else {
      EXPECT_THAT(SentFor(records, "parameters").operations,
                  UnorderedElementsAre(GatherOf(way_)));
    }
    for (const Record& record : records) {
      if (record.operation != Operation::kAllReduce) continue;
      EXPECT_EQ(way_.sharding, GradientSharding::kNone) << record.label;
    }
  });
}

// Buffers included.
TEST_P(VolumesTest, MicroStepsUnderNoSyncSendNothing) {
  const bool has_no_sync = way_.sharding != GradientSharding::kStored &&
                           way_.stepping != Stepping::kInBackward;
  if (!has_no_sync) return;  // it is refused
  RunRanksHere({.ranks = ranks_}, [&](Communicator& comm) {
    Rank rank(comm, kUneven, way_, {.broadcast_buffers = true});
    for (int step = 0; step < 3; ++step) {
      rank.optimizer().ZeroGrad();
      rank.ddp().ZeroGrad();
      rank.NewRecords();
      for (int m = 0; m + 1 < kMicroSteps; ++m) {
        const NoSync quiet(rank.ddp());
        rank.MicroStep();
        EXPECT_THAT(rank.NewRecords(), IsEmpty());
      }
      rank.MicroStep();
      rank.ddp().FinishGradientSync();
      EXPECT_EQ(SentFor(rank.NewRecords(), "buffer").num_collectives, 1);
      rank.optimizer().Step();
    }
  });
}

}  // namespace
}  // namespace trainsys
