// The memory budget written out: what each line is, and the sum that gives it.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainsys/measure/findings.h"

namespace trainsys {

struct FormulaLine {
  std::string what;     // "optimizer state, ZeRO-1 and 2"
  std::string formula;  // "8 P / N"
  // The same in numbers, which gives formula_bytes: "8 × 918,656 / 4". Empty
  // where the written formula is not the whole rule: padded tensors.
  std::string numbers;
  int64_t formula_bytes = 0;
  // Of the jobs that have this line, the one that differs most; rank 0 after
  // forward.
  int64_t ledger_bytes = 0;

  int64_t difference_bytes() const { return ledger_bytes - formula_bytes; }
};

// Of all jobs with so many ranks: parameters, gradients, optimizer state,
// activations, then the buffers: communication, tokens and targets, position
// tables, the loss, padding. Lines without a byte by formula and by ledger
// are left out.
std::vector<FormulaLine> FormulaLines(const MemoryFinding& memory, int ranks);

// "P = 2 V D + ... = 918,656 parameters, ...": the letters of the formulas.
std::string FormulaLetters(const MemoryFinding& memory, int ranks);

}  // namespace trainsys
