// Published closed forms of model-state memory, as their sources print them.
// For comparison and for tables; what this library allocates is in
// model_states.h. Pure; units: bytes, unless a name says otherwise.
#pragma once

#include <cstdint>

namespace trainsys {

// Rajbhandari et al. 2020, arXiv 1910.02054, section 5 and figure 1: bytes a
// rank for P parameters on N ranks, 2 + 2 + K bytes a parameter.
// Shape: stage 0 (DP) to 3 (P_os+g+p).
double ZeroPaperBytes(double parameters, double ranks, int stage,
                      double optimizer_bytes = 12);

// The same paper, section 7: elements that a rank sends and receives in a
// step, in units of P: 2, 2, 2, 3 for stages 0 to 3.
double ZeroPaperVolume(int stage);

struct DeviceAndHostBytes {
  int64_t device = 0;  // a rank
  int64_t host = 0;    // a node
};

struct EstimatorSetup {
  int64_t parameters = 0;
  int64_t largest_layer = 0;  // parameters of it; ZeRO-3 only
  int64_t ranks_per_node = 1;
  int64_t nodes = 1;
  double host_slack = 1.5;  // factor on the host's side
};

// DeepSpeed, estimate_zero2_model_states_mem_needs: 18 = 2 (gradients, 16 bit)
// + 4 (gradients) + 4 (parameters) + 8 (Adam).
DeviceAndHostBytes DeepSpeedZero2(const EstimatorSetup& setup,
                                  bool offloads_optimizer);

enum class Zero3Offload { kNone, kOptimizer, kOptimizerAndParameters };

// DeepSpeed, estimate_zero3_model_states_mem_needs. `has_zero_init`: the model
// was sharded as it was built.
DeviceAndHostBytes DeepSpeedZero3(const EstimatorSetup& setup,
                                  Zero3Offload offload, bool has_zero_init);

// DeepSpeed's autotuner, get_instantiation_memory_required_per_gpu: 2 + 2 + 16
// bytes a parameter in fp16, 4 + 4 + 8 in fp32.
double DeepSpeedAutotuner(double parameters, double ranks, int stage,
                          bool is_fp16);

// Megatron-LM, theoretical_memory_usage.py: 18 bytes a parameter, or
// 6 + 12 / DP with the distributed optimizer.
double MegatronStateBytes(double parameters, double data_parallel,
                          bool has_distributed_optimizer);

// EleutherAI, "Transformer Math 101" and calc_transformer_mem.py: 2P for a
// 16-bit model, 4P for gradients, 12P for AdamW.
struct EleutherStates {
  double model = 0;
  double gradients = 0;
  double optimizer = 0;

  double Total() const { return model + gradients + optimizer; }
};
EleutherStates EleutherStateBytes(double parameters, double ranks, int stage);

// SmolLM2's and CS336's measured setups: f32 AdamW, 4 + 4 + 8 bytes, the
// stages dividing as the ZeRO paper has it.
double F32AdamBytes(double parameters, double ranks, int stage);

}  // namespace trainsys
