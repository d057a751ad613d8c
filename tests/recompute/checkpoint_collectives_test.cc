// Collectives inside segments, and the gradients' own beside them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/errors.h"
#include "collectives/shm/run_ranks.h"
#include "tests/recompute/segments.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/recompute/checkpoint.h"
#include "trainsys/recompute/keep_in_segment.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/tensor/tensor_memory.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Record;
using collectives::Recorder;
using collectives::ReduceOp;
using collectives::RunRanks;
using ::testing::HasSubstr;

at::Tensor SumOverRanks(Communicator& comm, const at::Tensor& t) {
  at::Tensor sum = t.detach().clone();
  comm.AllReduce(BufferOf(sum), ReduceOp::kSum, "part");
  return sum;
}

std::vector<Record> RecordsOf(const Recorder& recorder,
                              std::string_view label) {
  std::vector<Record> records = recorder.Records();
  std::erase_if(records, [&](const Record& r) {
    return r.label.find(label) == std::string::npos;
  });
  return records;
}

int64_t NumRecomputed(const std::vector<Record>& records) {
  return std::count_if(records.begin(), records.end(),
                       [](const Record& r) { return r.is_recomputed; });
}

at::Tensor RankInput(int rank) {
  return at::full({3}, 0.5f + static_cast<float>(rank)).set_requires_grad(true);
}

// The gradient of exp(x * s), s = 0.5 + 1.5 + ..., where s has no gradient.
at::Tensor ExpectedGradient(int rank, int ranks) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += 0.5f + static_cast<float>(r);
  return (RankInput(rank).detach() * sum).exp() * sum;
}

TEST(CheckpointCollectivesTest, ACollectiveInASegmentRunsAgainAndIsMarked) {
  for (const int ranks : {2, 3}) {
    const auto recorders = RunRanks({.ranks = ranks}, [&](Communicator& comm) {
      const at::Tensor x = RankInput(comm.rank());
      const auto layer = [&](const at::Tensor& t) {
        return (t * SumOverRanks(comm, t)).exp();
      };
      Checkpoint(layer, x).sum().backward();
      EXPECT_TRUE(at::allclose(x.grad(), ExpectedGradient(comm.rank(), ranks)));
    });
    for (const Recorder& recorder : recorders) {
      const std::vector<Record> records = RecordsOf(recorder, "part");
      ASSERT_EQ(records.size(), 2u);
      EXPECT_FALSE(records[0].is_recomputed);
      EXPECT_TRUE(records[1].is_recomputed);
    }
  }
}

TEST(CheckpointCollectivesTest, AKeptCollectiveRunsOnceAndMovesHalfTheBytes) {
  const auto recorders = RunRanks({.ranks = 3}, [](Communicator& comm) {
    const at::Tensor x = RankInput(comm.rank());
    const auto layer = [&](const at::Tensor& t) {
      return (t * KeepInSegment([&] { return SumOverRanks(comm, t); })).exp();
    };
    const auto outer = [&](const at::Tensor& t) {
      return Checkpoint(layer, t * 1);
    };
    Checkpoint(layer, x).sum().backward();
    EXPECT_TRUE(at::allclose(x.grad(), ExpectedGradient(comm.rank(), 3)));
    x.mutable_grad().reset();
    Checkpoint(outer, x).sum().backward();
    EXPECT_TRUE(at::allclose(x.grad(), ExpectedGradient(comm.rank(), 3)));
  });
  for (const Recorder& recorder : recorders) {
    const std::vector<Record> records = RecordsOf(recorder, "part");
    EXPECT_EQ(records.size(), 2u);  // one for each of the two losses
    EXPECT_EQ(NumRecomputed(records), 0);
  }
}

TEST(CheckpointCollectivesTest, RecomputationOnOneRankOnlyIsAMismatch) {
  RunRanks({.ranks = 2}, [](Communicator& comm) {
    const at::Tensor x = RankInput(comm.rank());
    const auto layer = [&](const at::Tensor& t) {
      return (t * SumOverRanks(comm, t)).exp();
    };
    const Mode mode = comm.rank() == 0 ? Mode::kCheckpointed : Mode::kPlain;
    const at::Tensor loss = Apply(mode, layer, x).sum();
    try {
      loss.backward();
      comm.Barrier("after backward");
      ADD_FAILURE() << "not detected on rank " << comm.rank();
    } catch (const collectives::MismatchError& e) {
      EXPECT_THAT(e.what(), HasSubstr("'part' (recomputed)"));
      EXPECT_THAT(e.what(), HasSubstr("'after backward'"));
    }
  });
}

// Each block is applied twice, in two segments, inside a third one.
BlockRunner Twice(Mode mode) {
  return [mode](const Layer& block, const at::Tensor& x) {
    const Layer both = [mode, block](const at::Tensor& t) {
      return Apply(mode, block, Apply(mode, block, t));
    };
    return Apply(mode, both, x);
  };
}

std::vector<Tensors> DdpGradients(Mode mode, std::vector<Recorder>& recorders,
                                  size_t& num_buckets) {
  std::vector<Tensors> gradients(2);
  const Samples samples = MakeSamples(0);
  recorders = RunRanks({.ranks = 2}, [&](Communicator& comm) {
    const auto model = MakeResidualModel(1, Twice(mode));
    BucketedDDP ddp(*model, comm, {.bucket_bytes = 1});
    if (comm.rank() == 0) num_buckets = ddp.buckets().size();
    ddp.BeginForward();
    LossOf(*model, samples.Part(comm.rank(), 2)).backward();
    ddp.FinishGradientSync();
    for (const at::Tensor& p : ddp.parameters()) {
      gradients[static_cast<size_t>(comm.rank())].push_back(p.grad().clone());
    }
  });
  return gradients;
}

TEST(CheckpointCollectivesTest, TiedWeightsInNestedSegmentsAreReducedOnce) {
  std::vector<Recorder> recorders;
  size_t num_buckets = 0;
  const auto plain = DdpGradients(Mode::kPlain, recorders, num_buckets);
  const auto ours = DdpGradients(Mode::kCheckpointed, recorders, num_buckets);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(EqualBits(ours[rank], plain[rank])) << "rank " << rank;
    const std::vector<Record> records = RecordsOf(recorders[rank], "bucket");
    EXPECT_EQ(records.size(), num_buckets);
    EXPECT_EQ(NumRecomputed(records), 0);
  }
  EXPECT_EQ(num_buckets, plain[0].size());  // one for each parameter
}

}  // namespace
}  // namespace trainsys
