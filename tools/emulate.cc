// Trains a language model on several ranks of this machine and proves it.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "collectives/errors.h"
#include "tools/parse.h"
#include "trainsys/data/byte_dataset.h"
#include "trainsys/data/stories.h"
#include "trainsys/platform/blas.h"
#include "trainsys/platform/memory.h"
#include "trainsys/proof/proof.h"
#include "trainsys/report/job_report.h"
#include "trainsys/report/progress.h"
#include "trainsys/timeline/step_text.h"
#include "trainsys/train/job.h"

namespace trainsys {
namespace {

constexpr char kDescription[] =
    "Trains a Transformer language model with several ranks as threads:\n"
    "bucketed data parallelism, ZeRO-1 and recomputation together. Ends with\n"
    "a table and with the proof that one rank would have got the same\n"
    "parameters. Exit code: 0 proved, 1 not, 2 wrong usage.\n\n"
    "Example: emulate --ranks 4 --steps 20 --timeline";

constexpr int64_t kContext = 256;
constexpr int64_t kProofSteps = 3;
constexpr size_t kStoryBytes = size_t{4} << 20;
constexpr uint64_t kStorySeed = 1;

struct Flags {
  JobOptions job;
  std::string recompute = "full";
  std::optional<std::string> data;
  std::string json;
  bool wants_timeline = false;
};

void AddFlags(CLI::App& app, Flags& flags) {
  JobOptions& job = flags.job;
  app.add_option("--ranks,--nproc-per-node", job.ranks, "number of ranks")
      ->capture_default_str();
  app.add_option("--steps", job.steps, "optimizer steps")
      ->capture_default_str();
  app.add_option("--batch", job.batch, "rows a rank and step")
      ->capture_default_str();
  app.add_option("--bucket-kb", job.bucket_kb, "KiB a gradient bucket")
      ->capture_default_str();
  app.add_option("--recompute", flags.recompute,
                 "which blocks are recomputed in backward")
      ->check(CLI::IsMember({"none", "full"}))
      ->capture_default_str();
  app.add_option("--zero", job.zero, "ZeRO stage: 0 or 1")
      ->capture_default_str();
  app.add_option("--lr", job.lr, "learning rate")->capture_default_str();
  app.add_option("--seed", job.seed, "of weights and data order")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--data", flags.data,
                 "file to train on, bytes are tokens (default: made stories)");
  app.add_option("--json", flags.json, "write all figures to this file");
  app.add_flag("--timeline", flags.wants_timeline,
               "draw the last step of rank 0");
}

// Relative paths mean the caller's folder, also under `bazel run`.
std::string FromCallersFolder(const std::string& path) {
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  return folder ? (std::filesystem::path(folder) / path).string() : path;
}

ByteDataset Load(const Flags& flags) {
  if (!flags.data) {
    return ByteDataset::FromBytes(MakeStories(kStorySeed, kStoryBytes),
                                  kContext);
  }
  return ByteDataset::FromFile(FromCallersFolder(*flags.data), kContext);
}

// Checked before the run, so that a wrong path costs no training; written to a
// neighbour and renamed, so that no half a file is ever there.
class JsonFile {
 public:
  explicit JsonFile(const std::string& path)
      : path_(path.empty() ? "" : FromCallersFolder(path)) {
    if (path_.empty()) return;
    const auto status = std::filesystem::status(path_);
    if (std::filesystem::exists(status)) {
      if (!std::filesystem::is_regular_file(status)) {
        throw collectives::InvalidArgument(
            "--json '" + path_ + "' is no regular file, expected one or none");
      }
      path_ = std::filesystem::canonical(path_).string();
    }
    file_.open(Unfinished());
    if (!file_) {
      throw collectives::InvalidArgument(
          "cannot write --json '" + path_ +
          "', expected a path in a folder that can be written");
    }
  }
  ~JsonFile() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove(Unfinished(), ignored);
  }

  void Write(const std::string& text) {
    if (path_.empty()) return;
    file_ << text << std::flush;
    if (!file_) throw collectives::Error("cannot write '" + path_ + "'");
    file_.close();
    std::filesystem::rename(Unfinished(), path_);
  }

 private:
  std::string Unfinished() const { return path_ + ".unfinished"; }

  std::string path_;
  std::ofstream file_;
};

// Sooner one clear line than the kernel's out-of-memory killer.
void CheckMemory(const JobOptions& job) {
  const int64_t needed = ProofMemoryBytes(job);
  const int64_t available = AvailableMemoryBytes();
  if (needed <= available) return;
  throw collectives::InvalidArgument(
      fmt::format("{} ranks x {} rows need about {:.1f} GB of memory, of which "
                  "this machine "
                  "has {:.1f}; use fewer ranks or a smaller --batch",
                  job.ranks, job.batch, static_cast<double>(needed) / 1e9,
                  static_cast<double>(available) / 1e9));
}

void PrintHeader(const Flags& flags, const ByteDataset& data,
                 const std::string& blas) {
  const JobOptions& job = flags.job;
  fmt::print(
      "emulate: {} ranks as threads, {} rows x {} tokens each, {} steps; "
      "buckets of {} KiB, ZeRO-{}, recompute {}\n"
      "data: {}, {} bytes, seed {}; {}, one thread a rank\n",
      job.ranks, job.batch, data.context(), job.steps, job.bucket_kb, job.zero,
      job.recompute == Recompute::kFull ? "full" : "none",
      flags.data.value_or("made stories"), data.num_bytes(), job.seed, blas);
  std::fflush(stdout);
}

int Emulate(Flags flags) {
  flags.job.recompute =
      flags.recompute == "full" ? Recompute::kFull : Recompute::kNone;
  Validate(flags.job);
  CheckMemory(flags.job);
  const ByteDataset data = Load(flags);
  JsonFile json(flags.json);
  flags.job.snapshot_steps = std::min(kProofSteps, flags.job.steps);
  const std::string blas = Describe(DetectBlas());
  PrintHeader(flags, data, blas);
  JobResult result;
  {
    Progress progress(flags.job.steps,
                      flags.job.ranks * flags.job.batch * data.context());
    result = RunJob(flags.job, data, [&progress](int64_t step, double loss) {
      progress.Show(step, loss);
    });
  }
  JobReport report = MakeReport(flags.job, data.context(), result);
  report.blas = blas;
  report.data = flags.data.value_or("made stories");
  report.proof = Prove(flags.job, data, result.snapshot);
  if (flags.wants_timeline) {
    fmt::print("\n{}", DrawStep(result.recorders[0], flags.job.steps - 1));
  }
  fmt::print("\n{}", AsText(flags.job, report));
  json.Write(AsJson(flags.job, report));
  return HasPassed(report) ? 0 : kExitFailed;
}

}  // namespace
}  // namespace trainsys

int main(int argc, char** argv) {
  trainsys::ReexecWithFastBlas(argv);
  CLI::App app(trainsys::kDescription, "emulate");
  trainsys::Flags flags;
  trainsys::AddFlags(app, flags);
  if (const auto code = trainsys::Parse(app, argc, argv)) return *code;
  return trainsys::Main(app, [&flags] {
    trainsys::UseOneBlasThread();
    return trainsys::Emulate(flags);
  });
}
