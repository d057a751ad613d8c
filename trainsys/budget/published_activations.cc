#include "trainsys/budget/published_activations.h"

namespace trainsys {

double KorthikantiLayerBytes(const LayerSizes& sizes, LayerMemory memory) {
  const double sbh = sizes.s * sizes.b * sizes.h;
  const double scores = 5 * sizes.a * sizes.s / sizes.h;  // 5as/h
  const double t = sizes.t;
  switch (memory) {
    case LayerMemory::kNone:
      return sbh * (34 + scores);
    case LayerMemory::kTensor:
      return sbh * (10 + 24 / t + scores / t);
    case LayerMemory::kTensorSequence:
      return sbh / t * (34 + scores);
    case LayerMemory::kTensorSelective:
      return sbh * (10 + 24 / t);
    case LayerMemory::kTensorSequenceSelective:
      return 34 * sbh / t;
    case LayerMemory::kFull:
      return 2 * sbh;
    case LayerMemory::kFullSharded:
      return 2 * sbh / t;
  }
  return 0;
}

double FirstStageFactor(double p, double m) {
  return m > 1 ? 1 + (p - 1) / (p * m) : 1;
}

double KorthikantiStateBytes(double layers, double h, double t, double p) {
  return 18 * 12 * layers * h * h / (t * p);
}

double MegatronLayerBytes(const LayerSizes& sizes, double ffn,
                          bool has_sequence_parallelism) {
  const double sbh = sizes.s * sizes.b * sizes.h;
  return has_sequence_parallelism ? sbh * (18 + 4 * ffn / sizes.h) / sizes.t
                                  : sbh * (10 + 24 / sizes.t);
}

double MegatronEmbeddingBytes(const LayerSizes& sizes, double p) {
  return sizes.s * sizes.b * p * (8 + sizes.h);
}

double MegatronOutputBytes(const LayerSizes& sizes, double vocab) {
  return 4 * sizes.s * sizes.b * sizes.h * (1 + vocab / sizes.h);
}

double EleutherActivationBytes(const LayerSizes& sizes, double layers,
                               bool has_checkpointing) {
  const double sbhl = sizes.s * sizes.b * sizes.h * layers;
  return has_checkpointing ? sbhl * 34
                           : sbhl * (34 + 5 * sizes.a * sizes.s / sizes.h);
}

}  // namespace trainsys
