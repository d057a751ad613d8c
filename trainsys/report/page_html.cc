#include "trainsys/report/page_html.h"

#include <fmt/core.h>

#include <string_view>
#include <vector>

#include "trainsys/report/findings_tables.h"
#include "trainsys/report/findings_text.h"
#include "trainsys/report/page_html_charts.h"
#include "trainsys/report/sentence.h"
#include "trainsys/svg/svg.h"

namespace trainsys {
namespace {

// Type of 8.4 pt on paper; all lengths follow it.
constexpr std::string_view kStyle = R"(
@page { size: A4; margin: 5mm 8mm; }
html { font-size: 14.5px; }
@media print { html { font-size: 11.2px; } }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.1 "Liberation Sans", Arial, Helvetica,
  "DejaVu Sans Condensed", sans-serif; }
main { width: 64.3rem; max-width: 96vw; margin: 1rem auto; }
h1 { font-size: 1.25rem; line-height: 1.15; margin: 0 0 .25rem; }
h2 { font-size: 1.08rem; margin: .3rem 0 .1rem; padding-top: .15rem;
  border-top: 1px solid var(--ink); }
h2.run-in { display: inline; border: 0; }
h2.run-in + p { display: inline; margin-left: .5rem; }
p { margin: .1rem 0; }
.conditions { color: var(--muted); }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace;
  font-size: 1rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums;
  margin: .15rem 0; }
table.wide { width: 100%; }
caption { text-align: left; font-weight: 700; padding-top: .15rem; }
th, td { padding: 0 .35rem; text-align: right; vertical-align: top;
  border-bottom: .5px solid var(--grid); white-space: nowrap; }
th { font-weight: 400; }
thead th { color: var(--muted); }
th:first-child { text-align: left; padding-left: 0; }
.formulas td:nth-child(2), .formulas th:nth-child(2) { text-align: left; }
.formulas td:nth-child(2), .sweep td { white-space: normal; }
.sweep td, .sweep th { padding: 0 .2rem; }
.sweep th:first-child { padding-left: 0; }
.picture { max-width: 100%; height: auto; display: block; }
.picture .area { stroke: var(--paper); stroke-width: .6px; }
.columns { display: flex; justify-content: space-between;
  column-gap: 1rem; }
.columns > .rest { flex: 1 1 0; }
@media screen and (max-width: 50rem) { .columns { flex-wrap: wrap; } }
details { margin: .5rem 0; }
@media print { main { width: auto; max-width: none; margin: 0; }
  .conditions, .conditions code { font-size: .88rem; }
  details { display: none; } }
)";

std::string Element(const Piece& piece) {
  const std::string text = EscapeMarkup(piece.text);
  if (piece.path.empty()) return text;
  if (piece.unit == 0) {
    return fmt::format("<span data-json=\"{}\">{}</span>", piece.path, text);
  }
  return fmt::format(
      "<data value=\"{}\" data-json=\"{}\" data-unit=\"{}\">{}</data>",
      piece.value, piece.path, piece.unit, text);
}

std::string Inline(const Sentence& sentence) {
  std::string html;
  for (const Piece& piece : sentence.pieces) html += Element(piece);
  return html;
}

std::string Joined(const std::vector<Sentence>& sentences) {
  std::string html;
  for (const Sentence& sentence : sentences) {
    html += (html.empty() ? "" : " ") + Inline(sentence);
  }
  return html;
}

std::string Paragraph(const std::vector<Sentence>& sentences) {
  return fmt::format("<p>{}</p>\n", Joined(sentences));
}

std::string Row(const std::vector<Sentence>& cells) {
  std::string html = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string_view tag = i == 0 ? "th scope=\"row\"" : "td";
    html += fmt::format("<{}>{}</{}>", tag, Inline(cells[i]), tag.substr(0, 2));
  }
  return html + "</tr>\n";
}

std::string AsHtml(const Table& table, std::string_view classes = "") {
  std::string html =
      fmt::format("<table class=\"{}\">\n<caption>{}</caption>\n<thead><tr>",
                  classes, EscapeMarkup(table.caption));
  for (const Sentence& head : table.heads) {
    html += fmt::format("<th scope=\"col\">{}</th>", Inline(head));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) html += Row(row);
  return html + "</tbody>\n</table>\n";
}

std::string Columns(const std::string& first, const std::string& rest) {
  return fmt::format(
      "<div class=\"columns\"><div>\n{}</div><div class=\"rest\">\n{}</div>"
      "</div>\n",
      first, rest);
}

std::string ConditionsPart(const Findings& findings, const Figures& figures) {
  return fmt::format("<p class=\"conditions\">{} <code>{}</code></p>\n",
                     Joined(ConditionLines(findings, figures)),
                     Inline(figures.Quote("conditions.command")));
}

std::string MemoryPart(const Findings& findings, const Figures& figures) {
  return "<h2>1 Memory budget</h2>\n" +
         Paragraph(MemorySentences(findings, figures)) +
         AsHtml(FormulaTable(findings, figures), "wide formulas") +
         fmt::format("<p class=\"conditions\">{}</p>\n",
                     Inline(figures.Quote("memory.letters"))) +
         AsHtml(TotalsTable(findings, figures), "wide") +
         MemoryChart(findings.memory);
}

std::string BucketPart(const Findings& findings, const Figures& figures) {
  return "<h2>2 Bucket size</h2>\n" +
         Columns(BucketChart(findings.buckets, findings.conditions.cores),
                 AsHtml(SweepTable(findings, figures), "wide sweep")) +
         Paragraph(BucketSentences(findings, figures)) +
         "<details><summary>Every size</summary>\n" +
         AsHtml(AllSizesTable(findings, figures)) + "</details>\n";
}

std::string RecomputePart(const Findings& findings, const Figures& figures) {
  return "<h2>3 Recomputation</h2>\n" +
         Columns(RecomputeChart(findings.recompute),
                 AsHtml(RecomputeTable(findings, figures), "wide")) +
         Paragraph(RecomputeSentences(findings, figures));
}

}  // namespace

std::string AsHtml(const Findings& findings,
                   const nlohmann::ordered_json& report) {
  const Figures figures(report);
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
         "<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n"
         "<title>Memory, buckets and recomputation</title>\n<style>" +
         SvgStyle() + std::string(kStyle) +
         "</style>\n</head>\n<body>\n<main>\n<h1>" +
         Inline(Headline(findings, figures)) + "</h1>\n" +
         ConditionsPart(findings, figures) + MemoryPart(findings, figures) +
         BucketPart(findings, figures) + RecomputePart(findings, figures) +
         "<h2 class=\"run-in\">Limits</h2>\n" +
         Paragraph(LimitSentences(findings, figures)) +
         "</main>\n</body>\n</html>\n";
}

}  // namespace trainsys
