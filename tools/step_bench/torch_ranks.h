// The same step by torch's DistributedDataParallel over Gloo, in processes.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/collective_bench/shell.h"
#include "tools/step_bench/line_process.h"
#include "tools/step_bench/rungs.h"

namespace trainsys {

// A python3 that can import torch.
struct TorchPython {
  std::string program;      // empty: there is none
  std::string description;  // one line: which torch, or why there is none
};

// `program`: the one to take; empty: the first that has torch.
// Blocks: at most a minute for each that is tried.
TorchPython FindTorchPython(const std::string& program);

// One process a rank. Between steps all of them sleep.
class TorchRanks {
 public:
  // Blocks: until all are ready, at most two minutes.
  // Errors: Error if one cannot, or if it has another number of parameters.
  TorchRanks(const TorchPython& python, const StepCase& what);

  // From the first rank's begin to the last one's end.
  // Blocks: at most two minutes. Errors: Error; no more steps then.
  double StepMs();

 private:
  std::string Receive(size_t rank, LineProcess::Deadline deadline);

  TempFolder folder_;
  std::vector<std::unique_ptr<LineProcess>> ranks_;
};

}  // namespace trainsys
