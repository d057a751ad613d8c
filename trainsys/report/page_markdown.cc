#include "trainsys/report/page_markdown.h"

#include <fmt/core.h>

#include <string_view>
#include <vector>

#include "trainsys/report/findings_tables.h"
#include "trainsys/report/findings_text.h"
#include "trainsys/report/sentence.h"

namespace trainsys {
namespace {

// What Markdown would take for its own.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\`*_<>|[]#").find(c) != std::string_view::npos) {
      out += '\\';
    }
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out;
}

std::string Text(const Sentence& sentence) { return Escaped(Plain(sentence)); }

std::string Paragraph(const std::vector<Sentence>& sentences) {
  std::string text;
  for (const Sentence& s : sentences) text += Text(s) + "\n";
  return text + "\n";
}

std::string Row(const std::vector<Sentence>& cells) {
  std::string text = "|";
  for (const Sentence& cell : cells) text += " " + Text(cell) + " |";
  return text + "\n";
}

std::string AsMarkdown(const Table& table) {
  std::string text = "**" + Escaped(table.caption) + "**\n\n";
  text += Row(table.heads) + "|";
  for (size_t i = 0; i < table.heads.size(); ++i) {
    text += i == 0 ? ":--|" : "--:|";
  }
  text += "\n";
  for (const auto& row : table.rows) text += Row(row);
  return text + "\n";
}

}  // namespace

std::string AsMarkdown(const Findings& findings,
                       const nlohmann::ordered_json& report) {
  const Figures figures(report);
  return "# " + Text(Headline(findings, figures)) + "\n\n" +
         Paragraph(ConditionLines(findings, figures)) + "    " +
         Plain(figures.Quote("conditions.command")) + "\n\n" +
         "The charts are in report.html.\n\n## 1 Memory budget\n\n" +
         Paragraph(MemorySentences(findings, figures)) +
         AsMarkdown(FormulaTable(findings, figures)) +
         Paragraph({figures.Quote("memory.letters") + "."}) +
         AsMarkdown(TotalsTable(findings, figures)) + "## 2 Bucket size\n\n" +
         Paragraph(BucketSentences(findings, figures)) +
         AsMarkdown(SweepTable(findings, figures)) +
         AsMarkdown(AllSizesTable(findings, figures)) +
         "## 3 Recomputation\n\n" +
         Paragraph(RecomputeSentences(findings, figures)) +
         AsMarkdown(RecomputeTable(findings, figures)) + "## Limits\n\n" +
         Paragraph(LimitSentences(findings, figures));
}

}  // namespace trainsys
