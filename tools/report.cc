// Measures this machine's answers to three questions and writes them on a page.
#include <fmt/core.h>
#include <torch/version.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "collectives/record/clock.h"
#include "tools/backend.h"
#include "tools/collective_bench/shell.h"
#include "tools/commit.h"
#include "tools/output_folder.h"
#include "tools/parse.h"
#include "tools/setting.h"
#include "trainsys/data/stories.h"
#include "trainsys/measure/bucket_sweep.h"
#include "trainsys/measure/memory_budget.h"
#include "trainsys/measure/recompute_cost.h"
#include "trainsys/platform/blas.h"
#include "trainsys/report/findings_json.h"
#include "trainsys/report/findings_text.h"
#include "trainsys/report/page_html.h"
#include "trainsys/report/page_markdown.h"
#include "trainsys/terminal/interrupt.h"
#include "trainsys/terminal/progress.h"
#include "trainsys/terminal/terminal.h"
#include "trainsys/timeline/trace.h"
#include "trainsys/train/job.h"

namespace trainsys {
namespace {

using collectives::RankRunner;
using collectives::Recorder;

constexpr char kDescription[] =
    "Trains a Transformer language model on 2, 3 and 4 ranks with bucketed\n"
    "data parallelism, ZeRO and recomputation together, and writes one page:\n"
    "each stage's memory beside its formula, which bucket size is best and\n"
    "why, what recomputation costs and saves. Into DIR come report.html,\n"
    "report.md, report.json and trace/, a trace of each rank for Perfetto or\n"
    "HolisticTraceAnalysis. Under five minutes on two cores.\n\n"
    "Example: report --out /tmp/report";

constexpr size_t kStoryBytes = size_t{4} << 20;
constexpr uint64_t kStorySeed = 1;
constexpr int64_t kContext = 256;
constexpr int64_t kTracedSteps = 5;

struct Flags {
  std::string out;
  bool is_quick = false;
  uint64_t seed = 1;
  BackendFlags backend;
};

const std::vector<int> kRanks = {2, 3, 4};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--out", flags.out, "folder to write into")->required();
  app.add_flag("--quick", flags.is_quick,
               "a few turns of everything: a look at the page, not figures to "
               "rely on");
  app.add_option("--seed", flags.seed, "of weights and data order")
      ->check(SeedCheck())
      ->capture_default_str();
  AddBackendFlags(app, flags.backend);
}

// In quotes where a shell would take it for something else.
std::string Argument(const std::string& text) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.:=,+-";
  const bool is_plain =
      !text.empty() && text.find_first_not_of(kPlain) == std::string::npos;
  return is_plain ? text : Quoted(text);
}

// What was run, as somebody else can run it.
std::string CommandOf(int argc, char** argv) {
  std::string command = "bazel run //tools:report --";
  for (int i = 1; i < argc; ++i) command += " " + Argument(argv[i]);
  return command;
}

class Report {
 public:
  Report(const Flags& flags, const Placement& placement)
      : flags_(flags),
        runner_(MakeRunner(placement)),
        has_one_clock_(placement.backend == "threads") {
    job_.seed = flags.seed;
  }

  // All that is measured; on every process alike.
  void Measure() {
    findings_.memory =
        MeasureMemory(*runner_, job_, data_, kRanks, ProgressOf("memory"));
    BucketSweepOptions sweep = ReportSweep();
    sweep.job.seed = flags_.seed;
    sweep.ranks = kRanks;
    sweep.has_one_clock = has_one_clock_;
    if (!has_one_clock_) sweep.turns = sweep.link_turns = kGlooTurns;
    if (flags_.is_quick) sweep.turns = sweep.link_turns = kQuickTurns;
    const ByteDataset rows = Stories(kSweepContext);
    findings_.buckets =
        MeasureBuckets(*runner_, sweep, rows, ProgressOf("buckets"));
    recorders_ = Trace();
    if (!runner_->HasFirstRank()) return;
    findings_.recompute =
        MeasureRecompute(job_, data_, flags_.is_quick ? kQuickTurns : kTurns,
                         ProgressOf("recomputation"));
    progress_.Clear();
  }

  void ClearProgress() { progress_.Clear(); }
  Findings& findings() { return findings_; }
  const std::vector<Recorder>& recorders() const { return recorders_; }

 private:
  static constexpr int kTurns = 21;
  static constexpr int kGlooTurns = 5;  // a turn takes many times as long
  static constexpr int kQuickTurns = 3;

  static ByteDataset Stories(int64_t context) {
    return ByteDataset::FromBytes(MakeStories(kStorySeed, kStoryBytes),
                                  context);
  }

  MeasureProgress ProgressOf(const std::string& part) {
    if (!runner_->HasFirstRank()) return {};
    return [this, part](int64_t done, int64_t all, const std::string& detail) {
      progress_.Show(part, done, all, detail);
    };
  }

  // A few steps of the default job, with the most ranks.
  std::vector<Recorder> Trace() {
    JobOptions job = job_;
    job.ranks = kRanks.back();
    job.steps = kTracedSteps;
    JobResult result = RunJob(*runner_, job, data_);
    if (result.stop_signal != 0) throw Interrupted(result.stop_signal);
    return std::move(result.recorders);
  }

  const Flags& flags_;
  const std::unique_ptr<RankRunner> runner_;
  const bool has_one_clock_;
  const ByteDataset data_ = Stories(kContext);
  JobOptions job_;
  Progress progress_;
  Findings findings_;
  std::vector<Recorder> recorders_;
};

Conditions ConditionsOf(const Flags& flags, const Placement& placement,
                        const std::string& command) {
  const Setting setting = SettingHere("report", Describe(placement));
  Conditions conditions;
  conditions.backend = setting.backend;
  conditions.date = setting.date;
  conditions.host = setting.machine;
  conditions.cores = setting.cores;
  conditions.versions = setting.versions;
  conditions.versions.emplace_back("libtorch", TORCH_VERSION);
  conditions.versions.emplace_back("BLAS", Describe(DetectBlas()));
  conditions.commit = CommitOfCheckout();
  conditions.command = command;
  conditions.data = fmt::format("made stories, {} MiB", kStoryBytes >> 20);
  conditions.seed = flags.seed;
  return conditions;
}

void WriteAll(const OutputFolder& out, const Findings& findings,
              const nlohmann::ordered_json& report,
              const std::vector<Recorder>& recorders,
              const std::string& backend) {
  const std::vector<std::string> traces = RankTraces(recorders, backend);
  for (size_t rank = 0; rank < traces.size(); ++rank) {
    out.Write("trace/" + TraceFileName(static_cast<int>(rank)), traces[rank]);
  }
  out.Write("report.json", AsJsonText(report));
  out.Write("report.md", AsMarkdown(findings, report));
  out.Write("report.html", AsHtml(findings, report));
}

// The page would lack its parts: only the JSON is written.
int EndInterrupted(const OutputFolder& out, const Findings& findings,
                   int signal) {
  out.Write("report.json", AsJsonText(AsJson(findings)));
  Put(fmt::format("report: interrupted; {}/report.json has the parts that "
                  "were measured\n",
                  out.path()),
      stderr);
  return kExitSignal + signal;
}

int MeasureAndWrite(const Flags& flags, const Placement& placement,
                    const std::string& command, const OutputFolder& out) {
  const int64_t began_ns = collectives::NowNs();
  Report report(flags, placement);
  Findings& findings = report.findings();
  findings.conditions = ConditionsOf(flags, placement, command);
  int stop_signal = 0;
  try {
    report.Measure();
  } catch (const Interrupted& interrupted) {
    stop_signal = interrupted.signal();
    report.ClearProgress();
  }
  findings.is_interrupted = stop_signal != 0;
  findings.conditions.seconds =
      static_cast<double>(collectives::NowNs() - began_ns) / 1e9;
  if (stop_signal != 0) return EndInterrupted(out, findings, stop_signal);
  const nlohmann::ordered_json json = AsJson(findings);
  WriteAll(out, findings, json, report.recorders(), placement.backend);
  Put(fmt::format("{}\nwritten: {}/report.html\n",
                  Plain(Headline(findings, Figures(json))), out.path()),
      stdout);
  return 0;
}

int MakeReport(const Flags& flags, const std::string& command, char** argv) {
  const Placement placement = Place(flags.backend, ::getenv);
  RequireRanks(placement, kRanks.back());
  if (!placement.HasFirstRank()) {
    Report(flags, placement).Measure();
    return 0;
  }
  const OutputFolder out("--out", flags.out);
  if (placement.MustLaunch()) return Launch(kRanks.back(), argv);
  return MeasureAndWrite(flags, placement, command, out);
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  trainsys::ReexecWithFastBlas(argv);
  CLI::App app(trainsys::kDescription, "report");
  trainsys::Flags flags;
  trainsys::AddFlags(app, flags);
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&] {
    trainsys::UseOneBlasThread();
    return trainsys::MakeReport(flags, trainsys::CommandOf(argc, argv), argv);
  });
}
