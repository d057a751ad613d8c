#include "tools/step_bench/bookkeeping.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "collectives/record/clock.h"
#include "collectives/record/recorder.h"
#include "collectives/shm/run_ranks.h"
#include "tools/run_bench.h"
#include "tools/without_ledger.h"
#include "trainsys/ddp/bucketed_ddp.h"
#include "trainsys/ddp/parameter_hooks.h"
#include "trainsys/memory/ledger.h"
#include "trainsys/memory/saved_bytes.h"
#include "trainsys/terminal/interrupt.h"

namespace trainsys {
namespace {

using collectives::Communicator;
using collectives::NowNs;

struct ManyParameters : torch::nn::Module {
  ManyParameters() {
    for (int i = 0; i < Bookkeeping::kParameters; ++i) {
      register_parameter("p" + std::to_string(i), at::ones({1}));
    }
  }

  // Every parameter gets a gradient of its own making.
  at::Tensor Loss() const {
    std::vector<at::Tensor> products;
    for (const at::Tensor& p : parameters()) products.push_back(p * 2);
    return at::cat(products).sum();
  }
};

// Times of one step, in ns.
struct Spent {
  int64_t backward_ns = 0;
  int64_t others_ns = 0;  // forward apart
};

Spent StepOf(const ManyParameters& module,
             const std::vector<at::Tensor>& parameters, DataParallel* ddp) {
  const int64_t began_ns = NowNs();
  for (const at::Tensor& p : parameters) p.mutable_grad().reset();
  if (ddp) ddp->BeginForward();
  const int64_t ready_ns = NowNs();
  const at::Tensor loss = module.Loss();
  const int64_t forward_ns = NowNs();
  loss.backward();
  const int64_t backward_ns = NowNs();
  if (ddp) ddp->FinishGradientSync();
  return {backward_ns - forward_ns,
          NowNs() - backward_ns + ready_ns - began_ns};
}

void MeasureHooks(int turns, Communicator& comm, Progress& progress,
                  Bookkeeping& result) {
  ManyParameters plain, hooked, wrapped;
  BucketedDDP ddp(wrapped, comm);
  const auto plain_parameters = plain.parameters();
  const auto hooked_parameters = hooked.parameters();
  const ParameterHooks hooks(hooked_parameters, [](size_t) {});
  std::vector<Spent> without, empty, with;
  InterleavedMs(
      {[&] { without.push_back(StepOf(plain, plain_parameters, nullptr)); },
       [&] { empty.push_back(StepOf(hooked, hooked_parameters, nullptr)); },
       [&] { with.push_back(StepOf(wrapped, ddp.parameters(), &ddp)); }},
      turns, Watch(progress, "hooks", turns));
  const auto more_us = [&without](const std::vector<Spent>& more,
                                  const auto& ns_of) {
    const Quartiles ns = OverTurns(more.size(), [&](size_t turn) {
      return static_cast<double>(ns_of(more[turn]) - ns_of(without[turn]));
    });
    return ns.median / 1e3 / Bookkeeping::kParameters;
  };
  const auto backward_ns = [](const Spent& s) { return s.backward_ns; };
  result.empty_hook_us = more_us(empty, backward_ns);
  result.backward_us = more_us(with, backward_ns);
  result.step_us =
      more_us(with, [](const Spent& s) { return s.backward_ns + s.others_ns; });
}

// What a collective does to its record, over and over.
double RecordNs() {
  constexpr int kRecords = 100'000;
  const std::string channel = "ddp", label = "block0.attention.wq";
  collectives::Recorder recorder(0);
  const auto make = [&] {
    collectives::Record record;
    record.channel = channel;
    record.label = label;
    record.posted_ns = NowNs();
    const uint64_t number = recorder.Add(std::move(record));
    collectives::Record* const found = recorder.Find(number);
    found->state = collectives::RecordState::kDone;
    found->wait_began_ns = NowNs();
    found->matched_ns = found->done_ns = found->wait_ended_ns = NowNs();
  };
  const auto ms = InterleavedMs({[&] {
                                  for (int i = 0; i < kRecords; ++i) make();
                                }},
                                9);
  return Median(ms[0]) * 1e6 / kRecords;
}

void MeasureStep(const StepCase& what, int turns, Communicator& comm,
                 Progress& progress, Bookkeeping& result) {
  MemoryLedger ledger;
  const LedgerScope mine(ledger);
  RankStep step(what, Rung::kBucketed, comm);
  const auto records = [&comm] {
    return comm.recorder().lost() + comm.recorder().Records().size();
  };
  step.Run();  // the next one plans the buckets anew
  step.Run();
  const uint64_t before = records();
  step.Run();
  result.records = records() - before;
  const auto ms =
      InterleavedMs({[&] {
                       const WithoutLedger without;
                       step.Run();
                     },
                     [&] {
                       const SavedBytesScope saved(step.parameters());
                       step.Run();
                     }},
                    turns, Watch(progress, "ledger", turns));
  result.step_ms = Median(ms[0]);
  result.ledger_percent = OverTurns(ms[0].size(), [&ms](size_t turn) {
    return 100 * (ms[1][turn] / ms[0][turn] - 1);
  });
}

}  // namespace

Bookkeeping MeasureBookkeeping(StepCase what, int turns, Progress& progress) {
  what.ranks = 1;
  Bookkeeping result;
  result.record_ns = RecordNs();
  int signal = 0;
  collectives::RunRanks({.ranks = 1}, [&](Communicator& comm) {
    try {
      MeasureHooks(10 * turns, comm, progress, result);
      MeasureStep(what, turns, comm, progress, result);
    } catch (const Interrupted& interrupted) {
      signal = interrupted.signal();
    }
  });
  if (signal != 0) throw Interrupted(signal);
  return result;
}

}  // namespace trainsys
