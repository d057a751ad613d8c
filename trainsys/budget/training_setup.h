// How a model is trained, as far as memory is concerned. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainsys/zero/shard_plan.h"

namespace trainsys {

enum class Precision {
  kF32,
  kF64,
  kBf16Masters,          // bf16 with f32 masters: 2 + 2 + 12 with Adam
  kBf16MastersF32Grads,  // the same, gradients accumulated in f32: 2 + 4 + 12
  kPureBf16,             // 2 + 2 + 4
};

enum class OptimizerKind { kSgd, kSgdMomentum, kAdam };

// Stage 1 may do either: all ranks get all averages, or each what it owns.
enum class GradientReduction { kAllReduce, kReduceScatter };

// Units: bytes an element.
struct ElementBytes {
  int64_t parameter = 0;
  int64_t gradient = 0;
  int64_t optimizer = 0;  // masters and moments together
};

ElementBytes BytesOf(Precision precision, OptimizerKind optimizer);

// Names as flags have them: "f32", "f64", "bf16", "bf16-f32grads",
// "bf16-pure"; "sgd", "momentum", "adam"; "flat", "tensor", "balanced".
// Errors: InvalidArgument for another name.
Precision PrecisionNamed(const std::string& name);
OptimizerKind OptimizerNamed(const std::string& name);
Partition PartitionNamed(const std::string& name);
std::string NameOf(Precision precision);
std::string NameOf(OptimizerKind optimizer);
std::string NameOf(Partition partition);

}  // namespace trainsys
