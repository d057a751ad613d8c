// Activations of published models, operation by operation, for planning. What
// TransformerLM keeps, to the byte, is in transformer_activations.h. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainsys/budget/architecture.h"
#include "trainsys/budget/recompute_plan.h"

namespace trainsys {

// kFull keeps the scores' softmax, [rows, heads, positions, positions]; kFlash
// keeps one f32 a head and position instead.
enum class AttentionKernel { kFull, kFlash };

struct ActivationOptions {
  int64_t rows = 1;
  int64_t positions = 0;
  int64_t elem_bytes = 2;
  AttentionKernel attention = AttentionKernel::kFlash;
};

// Something that one operation of a block keeps for backward. Units: bytes.
struct SavedItem {
  std::string what;
  int64_t bytes = 0;
  bool is_in_core = false;  // scores, softmax and mix, which kSelective drops
};

// GPT-2, 16 bit, kFull: 34sbh + 5as^2b in all, masks of one byte (Korthikanti
// et al. 2022, section 4.1). Llama: no dropout, no masks; q, k and v after
// rotation; SwiGLU as separate operations. In both the statistics of norms (4
// to 8 bytes a position) are left out, as in the paper.
std::vector<SavedItem> BlockItems(const ModelShape& shape,
                                  const ActivationOptions& options);

// Of one block: all of BlockItems; without the core; its input alone.
int64_t BlockBytes(const ModelShape& shape, const ActivationOptions& options,
                   BlockRecompute recompute);

// Units: bytes.
struct PlannedActivations {
  int64_t blocks = 0;     // kept by all of them at the end of forward
  int64_t embedding = 0;  // token numbers, and GPT-2's dropout mask
  // Inputs of the final norm and the output layer, f32 logits.
  int64_t head = 0;
  // What backward holds at most beyond `blocks`, while it runs one of them
  // again. 0 if nothing is run again.
  int64_t recomputed_block = 0;

  // The head is gone when backward reaches the blocks.
  int64_t HeadOrBlock() const;
  int64_t Peak() const { return blocks + embedding + HeadOrBlock(); }
};

// Gradients of activations and the operations' own temporaries are left out.
// Errors: InvalidArgument for rows or positions below 1, more positions than
// GPT-2's context, a plan that is not one entry a layer, or sizes beyond 1e18
// bytes.
PlannedActivations ActivationsOf(const ModelShape& shape,
                                 const ActivationOptions& options,
                                 const RecomputePlan& plan);

}  // namespace trainsys
