// Will it fit: a model's memory on one rank, against a device. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainsys/budget/architecture.h"
#include "trainsys/budget/model_states.h"
#include "trainsys/budget/planned_activations.h"
#include "trainsys/budget/traffic.h"

namespace trainsys {

struct PlanRequest {
  ModelShape shape;
  StatesOptions states{.precision = Precision::kBf16Masters};
  std::string recompute = "none";  // as PlanOfPolicy takes it
  AttentionKernel attention = AttentionKernel::kFlash;
  int64_t rows = 1;       // of a rank and micro-step
  int64_t positions = 0;  // 0: the shape's context
  int64_t device_bytes = 0;
};

struct MemoryPlan {
  PlanRequest request;  // rank: the one that needs the most
  int64_t parameters = 0;
  ModelStates states;
  PlannedActivations activations;
  StepTraffic traffic;

  int64_t Total() const { return states.Total() + activations.Peak(); }
  bool Fits() const { return Total() <= request.device_bytes; }
};

// Data parallelism: every rank has all layers and `rows` rows.
// Errors: InvalidArgument as ModelStatesOf, ActivationsOf and PlanOfPolicy, or
// for a device without memory.
MemoryPlan PlanMemory(const PlanRequest& request);

// The rows that fit at most; 0 if not even one does.
int64_t LargestBatch(const MemoryPlan& plan);

// One change to a plan, and what it would then need.
struct Remedy {
  std::string change;  // as a flag: "--zero 2"
  int64_t total_bytes = 0;
  bool fits = false;
};

// Changes that need less memory, each computed as a plan of its own, the one
// that saves most first; more changes at once only if no single one fits.
std::vector<Remedy> Remedies(const MemoryPlan& plan);

struct PlanLine {
  std::string name;
  int64_t bytes = 0;
};

// What Total() is made of, in the order of a table.
std::vector<PlanLine> PlanLines(const MemoryPlan& plan);

}  // namespace trainsys
