// SimpleDDP, AsyncDDP and BucketedDDP behind one interface.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "collectives/errors.h"
#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/async_ddp.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/ddp/same_module.h"
#include "trainsys/ddp/simple_ddp.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::Error;
using collectives::InvalidArgument;
using collectives::Record;
using collectives::RunRanksHere;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using torch::nn::Module;

enum class Rung { kSimple, kAsync, kBucketed };
constexpr Rung kRungs[] = {Rung::kSimple, Rung::kAsync, Rung::kBucketed};

std::unique_ptr<DataParallel> Make(Rung rung, Module& module,
                                   Communicator& comm) {
  switch (rung) {
    case Rung::kSimple:
      return std::make_unique<SimpleDDP>(module, comm);
    case Rung::kAsync:
      return std::make_unique<AsyncDDP>(module, comm);
    case Rung::kBucketed:
      return std::make_unique<BucketedDDP>(module, comm);
  }
  return nullptr;
}

TEST(RungsTest, AllGiveTheBitsOfReferenceA) {
  Module reference;
  const Tensors one = AddLayers(reference, 0);
  for (int ranks : {1, 2, 3, 4}) {
    const Tensors expected = MicroStepGradients(
        one, ranks, [&](int rank) { return LayersLoss(one, InputOf(rank)); });
    for (Rung rung : kRungs) {
      RunRanksHere({.ranks = ranks}, [&](Communicator& comm) {
        Module module;
        const Tensors parameters = AddLayers(module, 0);
        const auto ddp = Make(rung, module, comm);
        for (int round = 0; round < 3; ++round) {
          ddp->ZeroGrad();
          ddp->BeginForward();
          LayersLoss(parameters, InputOf(comm.rank())).backward();
          ddp->FinishGradientSync();
          EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
        }
      });
    }
  }
}

TEST(RungsTest, MicroStepsUnderNoSyncAddUpAndSendNothing) {
  Module reference;
  const Tensors one = AddLayers(reference, 0);
  const auto loss_of = [](const Tensors& parameters, int rank) {
    return LayersLoss(parameters, InputOf(10 + rank)) +
           LayersLoss(parameters, InputOf(rank));
  };
  const Tensors expected =
      MicroStepGradients(one, 2, [&](int rank) { return loss_of(one, rank); });
  for (Rung rung : kRungs) {
    RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      const auto ddp = Make(rung, module, comm);
      const size_t before = comm.recorder().Records().size();
      {
        const NoSync quiet(*ddp);
        ddp->BeginForward();
        LayersLoss(parameters, InputOf(10 + comm.rank())).backward();
      }
      EXPECT_EQ(comm.recorder().Records().size(), before);
      ddp->BeginForward();
      LayersLoss(parameters, InputOf(comm.rank())).backward();
      ddp->FinishGradientSync();
      // (a + b) of a rank is added up before ranks are: not the bits of
      // reference A, but the same numbers.
      EXPECT_LT(MaxDifference(GradientsOf(parameters), expected), 1e-6);
    });
  }
}

TEST(RungsTest, FinishingWhatNeverBeganIsAnError) {
  for (Rung rung : kRungs) {
    RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
      Module module;
      AddLayers(module, 0);
      const auto ddp = Make(rung, module, comm);
      EXPECT_THAT(ErrorOf<Error>([&] { ddp->FinishGradientSync(); }),
                  HasSubstr("BeginForward"));
      const NoSync quiet(*ddp);
      ddp->BeginForward();
      EXPECT_THAT(ErrorOf<Error>([&] { ddp->FinishGradientSync(); }),
                  HasSubstr("outside NoSync"));
    });
  }
}

TEST(RungsTest, TheReferencesVerifyThatRanksStartTheSame) {
  for (Rung rung : {Rung::kSimple, Rung::kAsync}) {
    std::vector<std::string> texts(3);
    RunRanksHere({.ranks = 3}, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      const at::Tensor buffer = module.register_buffer("count", at::ones({2}));
      {
        const c10::AutoGradMode no_grad(false);
        if (comm.rank() == 1) parameters[2][0][0] += 1;
        if (comm.rank() == 2) buffer[0] += 1;
      }
      texts[static_cast<size_t>(comm.rank())] =
          ErrorOf<InvalidArgument>([&] { Make(rung, module, comm); });
      BroadcastFromRank0(module, comm);
      Make(rung, module, comm);  // is content now
    });
    EXPECT_THAT(texts,
                Each(AllOf(HasSubstr("2 of 7"), HasSubstr("['w1' on rank 1]"),
                           HasSubstr("['count' on rank 2]"))));
  }
}

TEST(RungsTest, TheReferencesOverlapAsMuchAsTheirNamesSay) {
  for (Rung rung : {Rung::kSimple, Rung::kAsync}) {
    RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      const auto ddp = Make(rung, module, comm);
      const size_t before = comm.recorder().Records().size();
      ddp->BeginForward();
      LayersLoss(parameters, InputOf(comm.rank())).backward();
      const size_t in_backward = comm.recorder().Records().size() - before;
      ddp->FinishGradientSync();
      const std::vector<Record> records = comm.recorder().Records();
      EXPECT_EQ(records.size() - before, parameters.size());
      EXPECT_EQ(in_backward, rung == Rung::kAsync ? parameters.size() : 0);
      for (size_t r = before; r < records.size(); ++r) {
        EXPECT_EQ(records[r].is_async, rung == Rung::kAsync);
      }
    });
  }
}

TEST(RungsTest, AParameterMayBeGivenOtherData) {
  Module reference;
  const Tensors one = AddLayers(reference, 0);
  const Tensors expected = MicroStepGradients(
      one, 2, [&](int rank) { return LayersLoss(one, InputOf(rank)); });
  for (Rung rung : kRungs) {
    RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
      Module module;
      Tensors parameters = AddLayers(module, 1);
      const auto ddp = Make(rung, module, comm);
      // As torch::nn::Module::load does.
      for (size_t p = 0; p < parameters.size(); ++p) {
        parameters[p].set_data(one[p].detach().clone());
      }
      for (int round = 0; round < 2; ++round) {
        ddp->ZeroGrad();
        ddp->BeginForward();
        LayersLoss(parameters, InputOf(comm.rank())).backward();
        ddp->FinishGradientSync();
        EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected));
      }
    });
  }
}

}  // namespace
}  // namespace trainsys
