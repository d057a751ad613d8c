#include "trainsys/budget/published_states.h"

#include <algorithm>
#include <array>

namespace trainsys {
namespace {

// What stage `from` and those above it divide by the ranks.
double Sharded(double bytes, double ranks, int stage, int from) {
  return stage >= from ? bytes / ranks : bytes;
}

// Parameters, gradients and optimizer state of `p`, `g` and `k` bytes.
double Staged(double parameters, double ranks, int stage, double p, double g,
              double k) {
  return parameters *
         (Sharded(p, ranks, stage, 3) + Sharded(g, ranks, stage, 2) +
          Sharded(k, ranks, stage, 1));
}

int64_t Scaled(int64_t bytes, double factor) {
  return static_cast<int64_t>(static_cast<double>(bytes) * factor);
}

int64_t Ranks(const EstimatorSetup& setup) {
  return setup.ranks_per_node * setup.nodes;
}

// Host bytes a parameter of ZeRO-3: (a node's share, by all its ranks).
int64_t Zero3HostBytes(const EstimatorSetup& setup, Zero3Offload offload,
                       bool has_zero_init) {
  const int64_t params = setup.parameters;
  if (offload == Zero3Offload::kNone) {
    const int64_t built = has_zero_init ? setup.largest_layer : params;
    return Scaled(built * 4 * setup.ranks_per_node, setup.host_slack);
  }
  const int64_t each =
      offload == Zero3Offload::kOptimizerAndParameters ? 18 : 16;
  const int64_t share = params * each / setup.nodes;
  if (has_zero_init) return Scaled(share, setup.host_slack);
  const int64_t built = params * 4 * setup.ranks_per_node;
  return Scaled(std::max(built, share), setup.host_slack);
}

}  // namespace

double ZeroPaperBytes(double parameters, double ranks, int stage,
                      double optimizer_bytes) {
  return Staged(parameters, ranks, stage, 2, 2, optimizer_bytes);
}

double ZeroPaperVolume(int stage) { return stage < 3 ? 2 : 3; }

DeviceAndHostBytes DeepSpeedZero2(const EstimatorSetup& setup,
                                  bool offloads_optimizer) {
  const int64_t params = setup.parameters;
  if (offloads_optimizer) {
    const int64_t each = std::max<int64_t>(4 * Ranks(setup), 16);
    return {2 * params, Scaled(params * each, setup.host_slack)};
  }
  return {2 * params + 18 * params / Ranks(setup),
          Scaled(params * 4 * setup.ranks_per_node, setup.host_slack)};
}

DeviceAndHostBytes DeepSpeedZero3(const EstimatorSetup& setup,
                                  Zero3Offload offload, bool has_zero_init) {
  constexpr std::array<int64_t, 3> kOnDevice = {18, 2, 0};
  const int64_t sharded = kOnDevice[static_cast<size_t>(offload)];
  return {4 * setup.largest_layer + sharded * setup.parameters / Ranks(setup),
          Zero3HostBytes(setup, offload, has_zero_init)};
}

double DeepSpeedAutotuner(double parameters, double ranks, int stage,
                          bool is_fp16) {
  return is_fp16 ? Staged(parameters, ranks, stage, 2, 2, 16)
                 : Staged(parameters, ranks, stage, 4, 4, 8);
}

double MegatronStateBytes(double parameters, double data_parallel,
                          bool has_distributed_optimizer) {
  return parameters * (has_distributed_optimizer ? 6 + 12 / data_parallel : 18);
}

EleutherStates EleutherStateBytes(double parameters, double ranks, int stage) {
  return {Sharded(2 * parameters, ranks, stage, 3),
          Sharded(4 * parameters, ranks, stage, 2),
          Sharded(12 * parameters, ranks, stage, 1)};
}

double F32AdamBytes(double parameters, double ranks, int stage) {
  return Staged(parameters, ranks, stage, 4, 4, 8);
}

}  // namespace trainsys
