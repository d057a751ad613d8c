// Published closed forms of activation memory, 16 bit, with dropout. Pure;
// units: bytes.
#pragma once

namespace trainsys {

// Letters as in the paper.
struct LayerSizes {
  double s = 0;  // positions
  double b = 0;  // rows of a micro-batch
  double h = 0;  // width
  double a = 0;  // heads
  double t = 1;  // tensor-parallel ranks
};

enum class LayerMemory {
  kNone,                     // sbh(34 + 5as/h)
  kTensor,                   // sbh(10 + 24/t + 5as/(ht))
  kTensorSequence,           // sbh/t (34 + 5as/h)
  kTensorSelective,          // sbh(10 + 24/t)
  kTensorSequenceSelective,  // 34sbh/t
  kFull,                     // 2sbh
  kFullSharded,              // 2sbh/t
};

// One layer. Source: Korthikanti et al. 2022, arXiv 2205.05198, table 2.
double KorthikantiLayerBytes(const LayerSizes& sizes, LayerMemory memory);

// Layers that the first pipeline stage holds, in L: 1 + (p - 1)/(pm) for p
// stages and m interleaved chunks; 1 without interleaving (m = 1, where p
// micro-batches of L/p layers are in flight). Source: the same, section 4.2.3.
double FirstStageFactor(double p, double m);

// Parameters, gradients and optimizer of one rank: 18 bytes for each of
// 12Lh^2/(tp) parameters. Source: the same, figure 1, and Calculon's
// validation of it.
double KorthikantiStateBytes(double layers, double h, double t, double p);

// Megatron-LM, theoretical_memory_usage.py: a layer with sequence parallelism
// sbh(18 + 4 ffn/h)/t, without it sbh(10 + 24/t).
double MegatronLayerBytes(const LayerSizes& sizes, double ffn,
                          bool has_sequence_parallelism);

// The same: tokens into the embedding 8sbp, its dropout sbhp, and on a single
// stage the output layer 4sbh(1 + V/h).
double MegatronEmbeddingBytes(const LayerSizes& sizes, double p);
double MegatronOutputBytes(const LayerSizes& sizes, double vocab);

// EleutherAI, calc_transformer_mem.py: sbhL 34 with checkpointing, else
// sbhL(34 + 5as/h).
double EleutherActivationBytes(const LayerSizes& sizes, double layers,
                               bool has_checkpointing);

}  // namespace trainsys
