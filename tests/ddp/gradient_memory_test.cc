// Gradients live in the buckets of a BucketedDDP, whatever a training loop does
// to them between steps.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/backend/backend.h"
#include "tests/ddp/layers.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/tensor/compare.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::RunRanksHere;
using torch::nn::Module;

// Some parameters share a bucket, some have one of their own.
BucketedDDPOptions Options() {
  return {.bucket_bytes = 1100, .first_bucket_bytes = 400};
}

void ExpectInBuckets(const BucketedDDP& ddp) {
  for (const Bucket& bucket : ddp.buckets()) {
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      SCOPED_TRACE(ddp.names()[bucket.parameters[i]]);
      const at::Tensor& grad = ddp.parameters()[bucket.parameters[i]].grad();
      ASSERT_TRUE(grad.defined());
      const at::Tensor& first = ddp.parameters()[bucket.parameters[0]].grad();
      EXPECT_TRUE(grad.is_contiguous());
      EXPECT_EQ(grad.storage_offset(), bucket.layout.offsets[i]);
      EXPECT_EQ(grad.storage().data(), first.storage().data());
      EXPECT_EQ(grad.storage().nbytes(),
                static_cast<size_t>(bucket.layout.elems * 4));
    }
  }
}

// What a loop may do so that the next backward starts from nothing.
struct Reset {
  std::string name;
  std::function<void(const Tensors& parameters)> reset;
};

void ForEach(const Tensors& parameters,
             const std::function<void(at::Tensor& grad)>& fn) {
  for (const at::Tensor& p : parameters) fn(p.mutable_grad());
}

const std::vector<Reset> kResets{
    {"libtorch's zero_grad",  // in place or to undefined, as the version has it
     [](const Tensors& parameters) {
       torch::optim::SGD(parameters, 0.1).zero_grad();
     }},
    {"undefined",
     [](const Tensors& parameters) {
       ForEach(parameters, [](at::Tensor& grad) { grad.reset(); });
     }},
    {"zeroed in place",
     [](const Tensors& parameters) {
       ForEach(parameters, [](at::Tensor& grad) { grad.zero_(); });
     }},
    {"detached and zeroed",
     [](const Tensors& parameters) {
       ForEach(parameters, [](at::Tensor& grad) { grad.detach_().zero_(); });
     }},
    {"replaced",
     [](const Tensors& parameters) {
       ForEach(parameters,
               [](at::Tensor& grad) { grad = at::zeros_like(grad); });
     }},
    {"replaced by one with strides",
     [](const Tensors& parameters) {
       ForEach(parameters, [](at::Tensor& grad) {
         grad = at::zeros(grad.t().sizes()).t();
       });
     }},
    {"pointed elsewhere",
     [](const Tensors& parameters) {
       ForEach(parameters,
               [](at::Tensor& grad) { grad.set_data(at::zeros_like(grad)); });
     }},
};

TEST(GradientMemoryTest, HoweverGradientsAreDroppedTheNextStepIsRight) {
  Module reference;
  const Tensors one = AddLayers(reference, 0);
  std::vector<Tensors> expected;  // of each step
  for (int step = 0; step < 3; ++step) {
    expected.push_back(MicroStepGradients(one, 2, [&](int rank) {
      return LayersLoss(one, InputOf(2 * step + rank));
    }));
  }
  for (const Reset& how : kResets) {
    SCOPED_TRACE(how.name);
    RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
      Module module;
      const Tensors parameters = AddLayers(module, 0);
      BucketedDDP ddp(module, comm, Options());
      for (int step = 0; step < 3; ++step) {
        ddp.BeginForward();
        LayersLoss(parameters, InputOf(2 * step + comm.rank())).backward();
        ddp.FinishGradientSync();
        EXPECT_TRUE(EqualBits(GradientsOf(parameters), expected[step]));
        ExpectInBuckets(ddp);
        how.reset(parameters);
      }
    });
  }
}

int64_t ParameterBytes(const BucketedDDP& ddp) {
  int64_t bytes = 0;
  for (const at::Tensor& p : ddp.parameters()) bytes += p.nbytes();
  return bytes;
}

// Nothing but the parameters and, once, the gradients.
void ExpectGradientsOnce(const MemoryLedger& ledger, const BucketedDDP& ddp) {
  const MemorySplit split = ledger.Current();
  EXPECT_EQ(split[MemoryCategory::kGradient], ParameterBytes(ddp));
  EXPECT_EQ(split[MemoryCategory::kPadding],
            ddp.GradientBytes() - ParameterBytes(ddp));
  EXPECT_EQ(split.Total(), ParameterBytes(ddp) + ddp.GradientBytes());
}

// The layers' parameters in another order than that of use: the buckets are
// planned again in the second step.
Tensors AddShuffledLayers(Module& module) {
  Module ordered;
  Tensors layers = AddLayers(ordered, 0);
  for (size_t p : {4, 0, 3, 5, 1, 2}) {
    layers[p] = module.register_parameter("p" + std::to_string(p), layers[p]);
  }
  return layers;
}

TEST(GradientMemoryTest, GradientsAreThereOnceBetweenStepsAndAfterTheNewPlan) {
  for (const Reset& how : kResets) {
    SCOPED_TRACE(how.name);
    std::vector<MemoryLedger> ledgers(2);
    RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
      const at::Tensor x = InputOf(comm.rank());
      const MemoryLedger& ledger = ledgers[static_cast<size_t>(comm.rank())];
      const LedgerScope mine(ledger);
      Module module;
      const Tensors parameters = AddShuffledLayers(module);
      BucketedDDP ddp(module, comm, Options());
      ExpectGradientsOnce(ledger, ddp);
      const auto planned = ddp.buckets()[0].parameters;
      for (int step = 0; step < 4; ++step) {
        ddp.BeginForward();
        LayersLoss(parameters, x).backward();
        ddp.FinishGradientSync();
        ExpectGradientsOnce(ledger, ddp);
        EXPECT_EQ(ddp.buckets()[0].parameters == planned, step == 0);
        how.reset(parameters);
      }
    });
  }
}

TEST(GradientMemoryTest, ABackwardHoldsNoMoreThanOneGradientTwice) {
  std::vector<MemoryLedger> ledgers(2);
  RunRanksHere({.ranks = 2}, [&](Communicator& comm) {
    MemoryLedger& ledger = ledgers[static_cast<size_t>(comm.rank())];
    const LedgerScope mine(ledger);
    Module module;
    constexpr int64_t kElems = 1 << 10;
    Tensors parameters;
    for (int p = 0; p < 8; ++p) {
      parameters.push_back(module.register_parameter(
          "p" + std::to_string(p), at::full({kElems}, 1.0 * p)));
    }
    BucketedDDP ddp(module, comm);
    ledger.ResetPeak();
    const int64_t before = ledger.Current().Total();
    for (int step = 0; step < 3; ++step) {
      ddp.ZeroGrad();
      ddp.BeginForward();
      at::Tensor loss = at::zeros({});
      for (const at::Tensor& p : parameters) loss = loss + p.sum();
      loss.backward();
      ddp.FinishGradientSync();
    }
    EXPECT_LT(ledger.Peak().bytes, before + 2 * 4 * kElems);
  });
}

}  // namespace
}  // namespace trainsys
