// What the findings say, in sentences. Pure: each is made from figures alone,
// and what the figures do not show is said to be unexplained.
//
// Errors of all functions: as findings_json.h. `figures` are of
// AsJson(findings).
#pragma once

#include <vector>

#include "trainsys/measure/findings.h"
#include "trainsys/report/sentence.h"

namespace trainsys {

// The three findings, each with its number.
Sentence Headline(const Findings& findings, const Figures& figures);

// What was trained, where, with what, and by which command.
std::vector<Sentence> ConditionLines(const Findings& findings,
                                     const Figures& figures);

std::vector<Sentence> MemorySentences(const Findings& findings,
                                      const Figures& figures);

// Of the sweep that is shown: the optimum, why not smaller, why not larger,
// what overlap is worth, and where the model is wrong.
std::vector<Sentence> BucketSentences(const Findings& findings,
                                      const Figures& figures);

std::vector<Sentence> RecomputeSentences(const Findings& findings,
                                         const Figures& figures);

// What the figures do not tell.
std::vector<Sentence> LimitSentences(const Findings& findings,
                                     const Figures& figures);

}  // namespace trainsys
