// Writes the report of the sample findings into a folder, for browsers to
// open: write_page FOLDER [long]. `long`: of a host, versions and a command as
// long as real ones get.
#include <fstream>
#include <string>

#include "tests/report/sample_findings.h"
#include "trainsys/report/findings_json.h"
#include "trainsys/report/page_html.h"
#include "trainsys/report/page_markdown.h"

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) return 2;
  const std::string folder = std::string(argv[1]) + "/";
  trainsys::Findings findings = trainsys::SampleFindings();
  if (argc == 3) {
    trainsys::Conditions& c = findings.conditions;
    c.backend = "processes over Gloo";
    c.host = "Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz";
    c.commit = "383dfa8 and changes";
    c.seed = 18'446'744'073'709'551'615u;
    c.versions = {{"libtorch", "2.6.0+cpu"},
                  {"OpenBLAS",
                   "0.3.21, kernel SapphireRapids, one thread a "
                   "rank"},
                  {"compiler", "Debian Clang 19.1.7 (3+b1)"},
                  {"kernel", "6.12.9-cloud-amd64"}};
    c.command =
        "bazel run //tools:report -- --out /home/somebody/experiments/reports "
        "--backend gloo --seed 18446744073709551615";
    trainsys::BucketSweep& sweep = findings.buckets.sweeps[0];
    sweep.points[3].over_best_percent.low = -1;  // a tie with a gap
    sweep.points[4].over_best_percent.low = 1;
  }
  const auto report = trainsys::AsJson(findings);
  std::ofstream(folder + "report.json") << trainsys::AsJsonText(report);
  std::ofstream(folder + "report.html") << trainsys::AsHtml(findings, report);
  std::ofstream md(folder + "report.md");
  md << trainsys::AsMarkdown(findings, report);
  return md.good() ? 0 : 1;
}
