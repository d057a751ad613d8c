// The module is not wrapped: what is saved from it has its own names.
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/serialize.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/backend/backend.h"
#include "trainsys/checks/small_models.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/tensor/compare.h"
#include "trainsys/zero/zero_optimizer.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::RunRanksHere;

std::string Saved(const SmallModel& model) {
  torch::serialize::OutputArchive archive;
  model.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

void Load(const std::string& saved, SmallModel& model) {
  std::istringstream stream(saved);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  model.load(archive);
}

void Train(SmallModel& model, BucketedDDP& ddp, Optimizer& optimizer,
           Communicator& comm, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    ddp.ZeroGrad();
    ddp.BeginForward();
    LossOf(model, MakeSamples(1).Part(comm.rank(), comm.ranks())).backward();
    ddp.FinishGradientSync();
    optimizer.Step();
  }
}

TEST(StateTest, NamesAreTheModulesOwn) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    const auto model = MakeMlp(1);
    const BucketedDDP ddp(*model, comm);
    std::vector<std::string> names;
    for (const auto& item : model->named_parameters()) {
      names.push_back(item.key());
    }
    EXPECT_EQ(ddp.names(), names);
  });
}

TEST(StateTest, SavedFromTheWrapperItLoadsIntoTheBareModuleAndBack) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    const auto model = MakeMlp(comm.rank());
    BucketedDDP ddp(*model, comm, {.bucket_bytes = 1 << 10});
    ZeROOptimizer optimizer(ddp, comm, AdamWOptions{.lr = 1e-2});
    Train(*model, ddp, optimizer, comm, 3);
    const std::string saved = Saved(*model);
    const auto bare = MakeMlp(100);
    Load(saved, *bare);
    EXPECT_TRUE(EqualBits(bare->parameters(), model->parameters()));

    // Back into a wrapped module, which trains on from there.
    const auto other = MakeMlp(200 + comm.rank());
    BucketedDDP other_ddp(*other, comm, {.bucket_bytes = 1 << 10});
    ZeROOptimizer other_optimizer(other_ddp, comm, AdamWOptions{.lr = 1e-2});
    Load(Saved(*bare), *other);
    ZeROOptimizer fresh(ddp, comm, AdamWOptions{.lr = 1e-2});
    Train(*model, ddp, fresh, comm, 2);
    Train(*other, other_ddp, other_optimizer, comm, 2);
    EXPECT_TRUE(EqualBits(other->parameters(), model->parameters()));
    EXPECT_FALSE(EqualBits(other->parameters(), bare->parameters()));
  });
}

TEST(StateTest, AModuleOfAnotherDtypeIsFollowed) {
  RunRanksHere({.ranks = 2}, [](Communicator& comm) {
    const auto model = MakeMlp(0);
    BucketedDDP ddp(*model, comm);
    model->to(at::kDouble);
    ddp.BeginForward();
    Samples samples = MakeSamples(1).Part(comm.rank(), comm.ranks());
    samples.x = samples.x.to(at::kDouble);
    LossOf(*model, samples).backward();
    ddp.FinishGradientSync();
    for (const at::Tensor& p : ddp.parameters()) {
      EXPECT_EQ(p.grad().scalar_type(), at::kDouble);
    }
    EXPECT_EQ(ddp.GradientBytes() % 8, 0);
  });
}

}  // namespace
}  // namespace trainsys
