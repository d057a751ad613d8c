// The memory of one checkpointed segment, shared by its saved tensors. Not for
// use outside this folder.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <any>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainsys/memory/ledger.h"
#include "trainsys/random/draws.h"
#include "trainsys/recompute/checkpoint.h"
#include "trainsys/recompute/forward_state.h"
#include "trainsys/recompute/keep_in_segment.h"
#include "trainsys/recompute/saved_facts.h"

namespace trainsys {

// A tensor kept as one of the enclosing scopes' saved tensors: theirs to count,
// to drop in turn, and to check for changes. Detached: its history is the
// graph's to keep.
class KeptTensor {
 public:
  // Call it where the tensor is to be saved.
  explicit KeptTensor(const at::Tensor& t);

  // Detached; requires a gradient where the kept one did. In nested segments
  // this runs the enclosing one again.
  at::Tensor Fetch() const;

 private:
  torch::autograd::SavedVariable saved_;
  bool requires_grad_;
};

// What KeepInSegment has kept, and how its function left the generators.
struct KeptResult {
  ResultParts parts;
  Draws draws;
};

// Numbers the tensors that the first run saves and drops them, runs the
// segment again when the first of them is asked for, and hands them out.
//
// Threads: Drop(), Keep() and EndFirstRun() on the first run's thread, within
//   it; Get() and Release() on any thread.
class Segment {
 public:
  // Call it where `inputs` are to be saved.
  Segment(CheckpointOptions options, const std::vector<at::Tensor>& inputs,
          FirstRun::Again again);

  const CheckpointOptions& options() const { return options_; }

  // For the first run to note what it draws from.
  Draws& draws() { return kept_->draws; }

  // Takes note of the next saved tensor and returns its number.
  size_t Drop(const at::Tensor& t);

  // Call it where the result's tensors are to be saved.
  void Keep(const KeptResult& result);

  void EndFirstRun();

  // The tensor of that number, from the second run.
  at::Tensor Get(size_t index);

  // Nobody will ask for it again.
  void Release(size_t index);
  bool IsNeeded(size_t index);

  // Of each saved tensor, once the first run has ended.
  const std::vector<SavedFacts>& facts() const { return facts_; }

 private:
  class Turn;
  struct Stored {
    std::any frame;
    std::vector<KeptTensor> tensors;
    Draws draws;
  };
  // What a second run starts from. Written by the first run only.
  struct Kept {
    FirstRun::Again again;
    std::vector<KeptTensor> inputs;
    std::vector<Stored> results;
    Draws draws;
  };
  struct Fetched {
    std::vector<at::Tensor> inputs;
    std::vector<KeptResult> results;
  };
  struct Slot {
    bool is_needed = true;
    torch::autograd::SavedVariable tensor;  // empty until the second run
  };

  std::shared_ptr<const Kept> ToRunAgain();
  static Fetched Fetch(const Kept& kept);
  void RunAgain(const Kept& kept);
  std::vector<torch::autograd::SavedVariable> SavedOfSecondRun(const Kept& kept,
                                                               Fetched fetched);

  const CheckpointOptions options_;
  const MemoryContext memory_;     // of the first run's thread
  const at::Generator generator_;  // likewise
  const ForwardState state_;
  std::vector<SavedFacts> facts_;  // written by the first run only

  // Guards the rest, once the first run has ended. Never held while anything
  // of the caller's runs or is destroyed: that may free a graph, which calls
  // Release().
  std::mutex mutex_;
  std::condition_variable turn_ended_;
  std::thread::id runner_;      // whose second run is going on
  std::shared_ptr<Kept> kept_;  // null once the second run has ended
  std::vector<Slot> slots_;
  bool has_first_run_ended_ = false;
};

// "Checkpoint 'block 3'", or "Checkpoint" without a label.
std::string NameOf(const CheckpointOptions& options);

}  // namespace trainsys
