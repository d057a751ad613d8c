// The findings in tables. Pure. Errors: as findings_text.h.
#pragma once

#include <string>
#include <vector>

#include "trainsys/measure/findings.h"
#include "trainsys/report/sentence.h"

namespace trainsys {

// The first cell of each row is its head.
struct Table {
  std::string caption;
  std::vector<Sentence> heads;
  std::vector<std::vector<Sentence>> rows;
};

// With the most ranks: each part of a rank's memory, its formula in letters
// and numbers, bytes by formula and by ledger, and the difference: a number
// that is not 0 comes with the word DIFFERS.
Table FormulaTable(const Findings& findings, const Figures& figures);

// Bytes of a rank after forward, by ranks, stage and recomputation, and the
// largest difference of each row.
Table TotalsTable(const Findings& findings, const Figures& figures);

// For each number of ranks: what was fastest, measured and by the model, and
// what the model starts from.
Table SweepTable(const Findings& findings, const Figures& figures);

// Every size of every sweep.
Table AllSizesTable(const Findings& findings, const Figures& figures);

Table RecomputeTable(const Findings& findings, const Figures& figures);

}  // namespace trainsys
