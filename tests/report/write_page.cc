// Writes the report of the sample findings into a folder, for browsers to
// open: write_page FOLDER.
#include <fstream>
#include <string>

#include "tests/report/sample_findings.h"
#include "trainsys/report/findings_json.h"
#include "trainsys/report/page_html.h"
#include "trainsys/report/page_markdown.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = std::string(argv[1]) + "/";
  const trainsys::Findings findings = trainsys::SampleFindings();
  const auto report = trainsys::AsJson(findings);
  std::ofstream(folder + "report.json") << trainsys::AsJsonText(report);
  std::ofstream(folder + "report.html") << trainsys::AsHtml(findings, report);
  std::ofstream md(folder + "report.md");
  md << trainsys::AsMarkdown(findings, report);
  return md.good() ? 0 : 1;
}
