#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "tests/report/sample_findings.h"
#include "trainsys/budget/transformer_activations.h"
#include "trainsys/report/findings_json.h"
#include "trainsys/report/findings_tables.h"
#include "trainsys/report/memory_formulas.h"

namespace trainsys {
namespace {

using ::testing::HasSubstr;
using enum MemoryCategory;

// What a reader with a pocket calculator gets: numbers, letters, + - × /
// ( ) ⌈ ⌉ ², two factors side by side multiplied, × and / from left to right.
class Calculator {
 public:
  Calculator(std::string_view text, std::map<char, double> letters = {})
      : text_(text), letters_(std::move(letters)) {}

  double Result() {
    const double sum = Sum();
    EXPECT_TRUE(text_.empty()) << "left over: " << text_;
    return sum;
  }

 private:
  bool Takes(std::string_view sign) {
    while (text_.starts_with(' ')) text_.remove_prefix(1);
    if (!text_.starts_with(sign)) return false;
    text_.remove_prefix(sign.size());
    return true;
  }

  bool StartsFactor() {
    Takes(" ");
    return !text_.empty() &&
           (std::isalnum(static_cast<unsigned char>(text_[0])) ||
            text_.starts_with('(') || text_.starts_with("⌈"));
  }

  double Sum() {
    double sum = Product();
    while (true) {
      if (Takes("+")) {
        sum += Product();
      } else if (Takes("-")) {
        sum -= Product();
      } else {
        return sum;
      }
    }
  }

  double Product() {
    double product = Square();
    while (true) {
      if (Takes("/")) {
        product /= Square();
      } else if (Takes("×") || StartsFactor()) {
        product *= Square();
      } else {
        return product;
      }
    }
  }

  double Square() {
    const double factor = Factor();
    return Takes("²") ? factor * factor : factor;
  }

  double Factor() {
    if (Takes("(")) {
      const double sum = Sum();
      EXPECT_TRUE(Takes(")"));
      return sum;
    }
    if (Takes("⌈")) {
      const double sum = std::ceil(Sum());
      EXPECT_TRUE(Takes("⌉"));
      return sum;
    }
    Takes(" ");
    if (!text_.empty() && letters_.contains(text_[0])) {
      const double letter = letters_[text_[0]];
      text_.remove_prefix(1);
      return letter;
    }
    std::string digits;
    while (!text_.empty() &&
           (std::isdigit(static_cast<unsigned char>(text_[0])) ||
            text_[0] == ',')) {
      if (text_[0] != ',') digits += text_[0];
      text_.remove_prefix(1);
    }
    EXPECT_FALSE(digits.empty()) << "no number at: " << text_;
    if (digits.empty()) text_ = "";
    return digits.empty() ? 0 : std::stod(digits);
  }

  std::string_view text_;
  std::map<char, double> letters_;
};

std::map<char, double> LettersOf(const TrainedModel& m, int ranks) {
  std::map<char, double> letters = {{'V', m.vocab},   {'D', m.dim},
                                    {'L', m.layers},  {'H', m.heads},
                                    {'F', m.ffn},     {'B', m.rows},
                                    {'T', m.context}, {'n', m.rows * m.context},
                                    {'N', ranks}};
  letters['P'] =
      Calculator("2 V D + L (4 D² + 3 D F + 2 D) + D", letters).Result();
  letters['K'] = Calculator("n (4 D + V + 1) + 1", letters).Result();
  return letters;
}

// The sample's budget is StepBudgetOf() of the default model, so these are the
// bytes that a job of it must hold.
TEST(FormulaLinesTest, FormulasAndTheirNumbersGiveTheBudgetsBytes) {
  const MemoryFinding memory = SampleFindings().memory;
  for (const int ranks : {2, 3, 4}) {
    const auto letters = LettersOf(memory.model, ranks);
    const std::vector<FormulaLine> lines = FormulaLines(memory, ranks);
    ASSERT_EQ(lines.size(), 11u);
    for (const FormulaLine& line : lines) {
      SCOPED_TRACE(line.what + ": " + line.formula + " = " + line.numbers);
      const auto bytes = static_cast<double>(line.formula_bytes);
      EXPECT_EQ(Calculator(line.numbers).Result(), bytes);
      if (line.formula != "2 × largest bucket") {
        EXPECT_EQ(Calculator(line.formula, letters).Result(), bytes);
      }
      EXPECT_EQ(line.difference_bytes(), 0);
    }
  }
}

TEST(FormulaLinesTest, TheLettersAreTheModels) {
  const MemoryFinding memory = SampleFindings().memory;
  const auto letters = LettersOf(memory.model, 4);
  EXPECT_EQ(letters.at('P'), static_cast<double>(memory.model.parameters));
  EXPECT_EQ(letters.at('K'), 787'457);
  EXPECT_EQ(FormulaLetters(memory, 4),
            "P = 2 V D + L (4 D² + 3 D F + 2 D) + D = 918,656 parameters in "
            "f32; V = 256 tokens, D = 128 wide, L = 4 layers, H = 4 heads, F = "
            "384 feed-forward; N = 4 ranks, B = 4 rows each, T = 256 "
            "positions, n = B T = 1,024; K = n (4 D + V + 1) + 1 = 787,457 at "
            "the output");
}

// libtorch 2.6 keeps a tensor less in each norm.
TEST(FormulaLinesTest, OtherVersionsOfLibtorchHaveFormulasOfTheirOwn) {
  MemoryFinding memory = SampleFindings().memory;
  for (MemoryCase& c : memory.cases) {
    const TransformerConfig config;
    const SavedBytes saved =
        SavedAfterForward(config, {4, 256, 4, Libtorch::k2},
                          PlanOfPolicy(c.recompute, config.layers));
    c.budget[StepPoint::kAfterForward][kActivation] = saved.total();
  }
  for (const FormulaLine& line : FormulaLines(memory, 4)) {
    if (!line.what.starts_with("activations")) continue;
    EXPECT_EQ(Calculator(line.numbers).Result(),
              static_cast<double>(line.formula_bytes));
  }
}

// A formula that is not the whole rule shows no numbers that do not add up.
TEST(FormulaLinesTest, WhereTheWrittenFormulaIsNotTheRuleNoNumbersAreShown) {
  MemoryFinding memory = SampleFindings().memory;
  for (MemoryCase& c : memory.cases) {
    for (StepMemory* m : {&c.budget, &c.ledger}) {
      (*m)[StepPoint::kAfterForward][kParameter] -= 4;
      (*m)[StepPoint::kAfterForward][kPadding] += 60;
    }
  }
  const std::vector<FormulaLine> lines = FormulaLines(memory, 4);
  EXPECT_EQ(lines.front().what, "parameters");
  EXPECT_EQ(lines.front().numbers, "");
  EXPECT_EQ(lines.back().what, "padding");
  EXPECT_EQ(lines.back().formula_bytes, 60);
}

TEST(FormulaTableTest, ADifferenceComesWithAWord) {
  Findings findings = SampleFindings();
  MemoryCase& c = findings.memory.cases[14];  // 4 ranks, ZeRO-1, none
  c.ledger[StepPoint::kAfterForward][kOptimizerState] += 1024;
  c.difference_bytes = 1024;
  const auto report = AsJson(findings);
  std::map<std::string, std::string> last;
  for (const auto& row : FormulaTable(findings, Figures(report)).rows) {
    last[Plain(row.front())] = Plain(row.back());
  }
  EXPECT_EQ(last["optimizer, ZeRO-1 and 2"], "1,024 DIFFERS");
  EXPECT_EQ(last["optimizer state, DDP"], "0");
  const Table totals = TotalsTable(findings, Figures(report));
  EXPECT_EQ(Plain(totals.rows[1].back()), "0");
  EXPECT_EQ(Plain(totals.rows[2].back()), "1,024 DIFFERS");
}

TEST(TotalsTableTest, RowsAreRanksAndColumnsStagesWithoutAndWithRecomputation) {
  const auto report = AsJson(SampleFindings());
  const Table table = TotalsTable(SampleFindings(), Figures(report));
  ASSERT_EQ(table.rows.size(), 3u);
  ASSERT_EQ(table.heads.size(), 8u);
  EXPECT_EQ(Plain(table.heads[3]), "ZeRO-1");
  EXPECT_EQ(Plain(table.heads[4]), "ZeRO-1, full");
  EXPECT_EQ(Plain(table.rows[2][0]), "4");
  EXPECT_EQ(Plain(table.rows[2][4]), "15,629,576");
}

}  // namespace
}  // namespace trainsys
