// Training steps without their optimizer, with each way to average gradients,
// in turn.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "trainsys/ddp/data_parallel.h"
#include "trainsys/model/transformer_config.h"
#include "trainsys/terminal/progress.h"

namespace trainsys {

// kIdeal: the same forward and backward on every rank, without collectives.
enum class Rung { kIdeal, kSimple, kAsync, kBucketed };
inline constexpr std::array<Rung, 4> kRungs{Rung::kIdeal, Rung::kSimple,
                                            Rung::kAsync, Rung::kBucketed};
std::string Name(Rung rung);

struct StepCase {
  std::string name;
  TransformerConfig model;
  int64_t rows = 4;  // a rank
  int ranks = 1;
  int64_t bucket_bytes = int64_t{25} << 20;
};

// "default" (what emulate trains), "10m" or "tiny".
// Errors: InvalidArgument for others.
StepCase CaseOf(const std::string& name);

// One step of one rank: drops the gradients, forward, backward, and what the
// rung does to average. No recomputation.
// Threads: the rank's own. Lifetime: `comm` outlives it.
class RankStep {
 public:
  // A collective.
  RankStep(const StepCase& what, Rung rung, collectives::Communicator& comm);
  ~RankStep();

  void Run();
  const std::vector<at::Tensor>& parameters() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Units: milliseconds, from the first rank's begin to the last one's end.
struct StepTimes {
  std::array<std::vector<double>, kRungs.size()> rung_ms;  // of each turn
  std::vector<double> peer_ms;    // empty if it failed or there is none
  uint64_t bucketed_records = 0;  // that a rank makes in a kBucketed step

  const std::vector<double>& operator[](Rung rung) const {
    return rung_ms[static_cast<size_t>(rung)];
  }
};

// The time of one step of somebody else, who computes only meanwhile; nothing
// once it cannot.
using PeerStep = std::function<std::optional<double>()>;

// Ranks are threads. Variants take turns, every other time backwards, after a
// barrier each; the peer's step is one of them.
// Result: fewer turns, or none, once there was a signal.
StepTimes TimeSteps(const StepCase& what, int turns, const PeerStep& peer,
                    Progress& progress);

}  // namespace trainsys
