// Trains a language model on several ranks and proves it.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <optional>
#include <string>

#include "collectives/errors.h"
#include "collectives/record/clock.h"
#include "tools/backend.h"
#include "tools/output_file.h"
#include "tools/parse.h"
#include "trainsys/data/byte_dataset.h"
#include "trainsys/data/stories.h"
#include "trainsys/platform/blas.h"
#include "trainsys/platform/memory.h"
#include "trainsys/proof/proof.h"
#include "trainsys/report/job_report.h"
#include "trainsys/terminal/interrupt.h"
#include "trainsys/terminal/progress.h"
#include "trainsys/terminal/terminal.h"
#include "trainsys/terminal/units.h"
#include "trainsys/timeline/step_picture.h"
#include "trainsys/timeline/step_text.h"
#include "trainsys/train/job.h"

namespace trainsys {
namespace {

constexpr char kDescription[] =
    "Trains a Transformer language model with several ranks, as threads or as\n"
    "processes: bucketed data parallelism, ZeRO and recomputation together.\n"
    "Ends with a table and with the proof that one rank would have got the\n"
    "same parameters. Exit code: 0 proved, 1 not, 2 wrong usage, 130 after\n"
    "Ctrl-C, which ends it after the step, with the table; a second one at\n"
    "once.\n\n"
    "Example: emulate --ranks 4 --steps 20 --timeline";

constexpr int64_t kContext = 256;
constexpr int64_t kProofSteps = 3;
constexpr size_t kStoryBytes = size_t{4} << 20;
constexpr uint64_t kStorySeed = 1;

struct Flags {
  JobOptions job;
  std::optional<int> ranks;
  BackendFlags backend;
  std::optional<double> activation_budget_mb;
  std::string partition = "flat";
  std::optional<std::string> data;
  std::string json;
  bool wants_timeline = false;
  std::string timeline_svg;
};

void AddZeroFlags(CLI::App& app, Flags& flags) {
  JobOptions& job = flags.job;
  app.add_option("--zero", job.zero,
                 "ZeRO stage: 0, 1 (optimizer state is sharded) or 2 "
                 "(gradients too)")
      ->capture_default_str();
  app.add_option("--partition", flags.partition,
                 "how ZeRO cuts parameters: flat (evenly), tensor (runs of "
                 "whole tensors), balanced (whole tensors, by size)")
      ->capture_default_str();
  app.add_flag("--reduce-scatter", job.reduce_scatter,
               "ZeRO-1: reduce gradients to their owners only, as ZeRO-2 does");
  app.add_flag("--overlap-step", job.overlap_step,
               "step and send parameters inside backward, bucket by bucket");
}

void AddFlags(CLI::App& app, Flags& flags) {
  JobOptions& job = flags.job;
  app.add_option("--ranks,--nproc-per-node", flags.ranks,
                 "number of ranks (default: " + std::to_string(job.ranks) +
                     ", or as many as a launcher started)");
  AddBackendFlags(app, flags.backend);
  app.add_option("--steps", job.steps, "optimizer steps")
      ->capture_default_str();
  app.add_option("--batch", job.batch, "rows a rank and step")
      ->capture_default_str();
  app.add_option("--ddp", job.ddp,
                 "how gradients are averaged: simple (after backward), async "
                 "(each from its hook), bucketed")
      ->capture_default_str();
  app.add_option("--bucket-kb", job.bucket_kb, "KiB a gradient bucket")
      ->capture_default_str();
  auto* const recompute =
      app.add_option("--recompute", job.recompute,
                     "what runs a second time in backward: none, full (each "
                     "block), every-K (each K-th block), selective (the core "
                     "of each block's attention)")
          ->capture_default_str();
  app.add_option("--activation-budget-mb", flags.activation_budget_mb,
                 "recompute as little as keeps a rank's activations within "
                 "that many MB (1e6 bytes)")
      ->excludes(recompute);
  AddZeroFlags(app, flags);
  app.add_option("--lr", job.lr, "learning rate")->capture_default_str();
  app.add_option("--seed", job.seed, "of weights and data order")
      ->check(SeedCheck())
      ->capture_default_str();
  app.add_option("--data", flags.data,
                 "file to train on, bytes are tokens (default: made stories)");
  app.add_option("--json", flags.json, "write all figures to this file");
  app.add_flag("--timeline", flags.wants_timeline,
               "draw the last step of rank 0");
  app.add_option("--timeline-svg", flags.timeline_svg,
                 "draw it as a picture, into this file");
}

ByteDataset Load(const Flags& flags) {
  if (!flags.data) {
    return ByteDataset::FromBytes(MakeStories(kStorySeed, kStoryBytes),
                                  kContext);
  }
  return ByteDataset::FromFile(FromCallersFolder(*flags.data), kContext);
}

// 0 where none is asked for.
int64_t BudgetBytes(const std::optional<double>& mb) {
  if (!mb) return 0;
  if (!(*mb > 0) || *mb > 1e9) {
    throw collectives::InvalidArgument(
        fmt::format("--activation-budget-mb is {}, expected a number above 0 "
                    "and at most 1e9",
                    *mb));
  }
  return std::max(int64_t{1}, static_cast<int64_t>(*mb * 1e6));
}

// "full"; or, within a budget, what that makes of each block.
std::string RecomputeText(const Flags& flags, int64_t context) {
  if (!flags.activation_budget_mb) return flags.job.recompute;
  return fmt::format("{} (activations within {} MB)",
                     Describe(PlanOf(flags.job, context)),
                     *flags.activation_budget_mb);
}

// Sooner one clear line than the kernel's out-of-memory killer.
void CheckMemory(const JobOptions& job) {
  const int64_t needed = ProofMemoryBytes(job);
  const int64_t available = AvailableMemoryBytes();
  if (needed <= available) return;
  throw collectives::InvalidArgument(fmt::format(
      "{} ranks x {} rows need about {:.1f} GB of memory, of which "
      "this machine has {:.1f}; use fewer ranks or a smaller --batch",
      job.ranks, job.batch, static_cast<double>(needed) / 1e9,
      static_cast<double>(available) / 1e9));
}

std::string DdpText(const JobOptions& job) {
  if (job.ddp != "bucketed") return job.ddp + " all-reduces";
  return fmt::format("buckets of {} KiB", job.bucket_kb);
}

// "ZeRO-1 flat over reduce-scatter, stepping inside backward"
std::string ZeroText(const JobOptions& job) {
  std::string text = fmt::format("ZeRO-{}", job.zero);
  if (job.zero == 0) return text;
  text += " " + NameOf(job.partition);
  if (job.zero == 1 && job.reduce_scatter) text += " over reduce-scatter";
  if (job.overlap_step) text += ", stepping inside backward";
  return text;
}

std::string DataName(const Flags& flags) {
  return flags.data.value_or("made stories");
}

void PrintHeader(const Flags& flags, const Placement& placement,
                 const ByteDataset& data, const std::string& blas) {
  const JobOptions& job = flags.job;
  fmt::print(
      "emulate: {} ranks as {}, {} rows x {} tokens each, {} steps\n"
      "  {}, {}\n"
      "  recompute {}\n"
      "  {}, {}, seed {}\n"
      "  {}, one thread a rank\n",
      job.ranks, Describe(placement), job.batch, data.context(), job.steps,
      DdpText(job), ZeroText(job), RecomputeText(flags, data.context()),
      DataName(flags), BytesText(data.num_bytes()), job.seed, blas);
  std::fflush(stdout);
}

// Its lines stand in a file from the first step on.
JobResult RunShowingProgress(collectives::RankRunner& runner,
                             const JobOptions& job, const ByteDataset& data) {
  Progress progress(stderr, /*quiet_ns=*/0);
  const int64_t tokens_per_step = job.ranks * job.batch * data.context();
  const int64_t began_ns = collectives::NowNs();
  return RunJob(runner, job, data, [&](int64_t step, double loss) {
    const double seconds =
        static_cast<double>(collectives::NowNs() - began_ns) / 1e9;
    const double tokens = static_cast<double>((step + 1) * tokens_per_step);
    progress.Show(
        "step", step + 1, job.steps,
        fmt::format("loss {:.4f} | {:.0f} tokens/s", loss, tokens / seconds));
  });
}

std::optional<Proof> ProveShowingProgress(collectives::RankRunner& runner,
                                          const JobOptions& job,
                                          const ByteDataset& data,
                                          const JobResult& result) {
  Progress progress;
  return Prove(runner, job, data, result.snapshot,
               [&progress](int64_t done, int64_t all) {
                 progress.Show("proof", done, all);
               });
}

// The part of a process that does not have rank 0: it prints nothing.
int TakePart(const JobOptions& job, const ByteDataset& data,
             collectives::RankRunner& runner) {
  const JobResult result = RunJob(runner, job, data);
  if (result.stop_signal != 0) return kExitSignal + result.stop_signal;
  try {
    Prove(runner, job, data, {});
  } catch (const Interrupted& interrupted) {
    return kExitSignal + interrupted.signal();
  }
  return 0;
}

// What is written at the end.
struct Files {
  explicit Files(const Flags& flags)
      : json("--json", flags.json),
        timeline_svg("--timeline-svg", flags.timeline_svg) {
    if (json.is_wanted() && json.path() == timeline_svg.path()) {
      throw collectives::InvalidArgument(
          "--json and --timeline-svg are both '" + json.path() +
          "', expected two files");
    }
  }

  OutputFile json;
  OutputFile timeline_svg;
};

// A terminal that is gone takes no table, and a full disk no file: each loses
// only its own.
// Errors: Error for a file that could not be written.
void Show(const Flags& flags, const JobResult& result, const JobReport& report,
          const Files& files) {
  const collectives::Recorder& recorder = result.recorders[0];
  const int64_t last_step = std::ssize(result.losses) - 1;
  std::exception_ptr error;
  try {
    files.json.Write(AsJson(flags.job, report));
    if (files.timeline_svg.is_wanted()) {
      files.timeline_svg.Write(PictureOfStep(recorder, last_step));
    }
  } catch (const collectives::Error&) {
    error = std::current_exception();
  }
  std::string text;
  if (flags.wants_timeline) text += "\n" + DrawStep(recorder, last_step);
  text += "\n" + AsText(flags.job, report);
  Put(Paint(text, stdout), stdout);
  if (error) std::rethrow_exception(error);
}

int EndInterrupted(const JobOptions& job, const JobReport& report, int signal) {
  std::fflush(stdout);
  const int64_t done = std::ssize(report.losses);
  Put(fmt::format("emulate: interrupted {}; the table has what was done, "
                  "nothing is proved\n",
                  done < job.steps
                      ? fmt::format("after {} of {} steps", done, job.steps)
                      : "in the proof"),
      stderr);
  return kExitSignal + signal;
}

int TrainAndReport(const Flags& flags, const Placement& placement,
                   const ByteDataset& data, collectives::RankRunner& runner,
                   const Files& files) {
  const std::string blas = Describe(DetectBlas());
  PrintHeader(flags, placement, data, blas);
  const JobResult result = RunShowingProgress(runner, flags.job, data);
  JobReport report = MakeReport(flags.job, data.context(), result);
  report.backend = placement.backend;
  report.has_rank_order = placement.HasRankOrder();
  report.blas = blas;
  report.data = DataName(flags);
  int stop_signal = result.stop_signal;
  if (stop_signal == 0) {
    try {
      report.proof = ProveShowingProgress(runner, flags.job, data, result);
    } catch (const Interrupted& interrupted) {
      stop_signal = interrupted.signal();
    }
  }
  report.is_interrupted = stop_signal != 0;
  Show(flags, result, report, files);
  if (stop_signal != 0) return EndInterrupted(flags.job, report, stop_signal);
  return HasPassed(report) ? 0 : kExitFailed;
}

int Emulate(Flags flags, char** argv) {
  JobOptions& job = flags.job;
  const Placement placement = Place(flags.backend, ::getenv);
  if (placement.backend == "nccl") {
    throw collectives::InvalidArgument(
        "--backend nccl: emulate trains on CPUs; expected threads or gloo "
        "(run_checks has nccl)");
  }
  job.ranks = ChooseRanks(placement, flags.ranks, job.ranks);
  job.activation_budget_bytes = BudgetBytes(flags.activation_budget_mb);
  job.snapshot_steps = std::min(kProofSteps, job.steps);
  job.partition = PartitionNamed(flags.partition);
  Validate(job);
  const ByteDataset data = Load(flags);
  PlanOf(job, data.context());  // refused before anything starts
  if (!placement.HasFirstRank()) {
    return TakePart(job, data, *MakeRunner(placement));
  }
  CheckMemory(job);
  const Files files(flags);  // refused before anything starts
  if (placement.MustLaunch()) return Launch(job.ranks, argv);
  return TrainAndReport(flags, placement, data, *MakeRunner(placement), files);
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  trainsys::ReexecWithFastBlas(argv);
  CLI::App app(trainsys::kDescription, "emulate");
  trainsys::Flags flags;
  trainsys::AddFlags(app, flags);
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&flags, argv] {
    trainsys::UseOneBlasThread();
    return trainsys::Emulate(flags, argv);
  });
}
