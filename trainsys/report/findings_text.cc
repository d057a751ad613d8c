#include "trainsys/report/findings_text.h"

#include <fmt/core.h>

#include <cmath>
#include <optional>
#include <string>

#include "trainsys/report/answers.h"

namespace trainsys {
namespace {

// Below that, in percent, model and measurement agree.
constexpr double kAgreesPercent = 5;
constexpr int kFewestTurns = 5;
// Less is shown as 0.0.
constexpr double kShownMs = 0.05;

std::string Joined(const std::string& path, size_t index) {
  return fmt::format("{}.{}", path, index);
}

size_t FirstThatDiffers(const MemoryFinding& memory) {
  size_t i = 0;
  while (memory.cases[i].difference_bytes == 0) ++i;
  return i;
}

Sentence Cores(const Figures& figures, int cores) {
  return figures.Number("conditions.cores") + (cores == 1 ? " core" : " cores");
}

// To the last digit, for a command line: no number of the page holds 64 bits.
Sentence Seed(uint64_t seed) {
  return Piece{fmt::format("{}", seed), "conditions.seed", 0, 0};
}

// ---------------------------------------------------------------- buckets

// The sweep that is shown, its answer, and where its figures are.
struct Shown {
  const BucketSweep& sweep;
  BucketAnswer answer;
  std::string path;  // of the sweep
  const Figures& figures;

  Sentence Of(const std::string& name, int decimals = 1) const {
    return figures.Number(path + "." + name, decimals);
  }
  Sentence Answer(const std::string& name, int decimals = 1) const {
    return Of("answer." + name, decimals);
  }
  Sentence Point(size_t i, const std::string& name, int decimals = 1) const {
    return Of(Joined("points", i) + "." + name, decimals);
  }
  Sentence Size(size_t i) const {
    return figures.BucketSize(path + "." + Joined("points", i) +
                              ".bucket_bytes");
  }
  const BucketPoint& Best() const { return sweep.points[answer.best]; }
};

Shown ShownSweep(const Findings& findings, const Figures& figures) {
  const size_t i = SweepToShow(findings.buckets, findings.conditions.cores);
  const BucketSweep& sweep = findings.buckets.sweeps[i];
  return {sweep, AnswerOf(sweep, findings.buckets.model.parameters),
          Joined("buckets.sweeps", i), figures};
}

// "256 KiB to 2 MiB", "7 sizes from 256 KiB to 16 MiB".
Sentence Sizes(const Shown& s, const EqualSizes& equal,
               const std::string& count) {
  if (equal.count == 1) return s.Size(equal.from);
  const Sentence range = s.Size(equal.from) + " to " + s.Size(equal.to);
  if (equal.AreAllBetween()) return range;
  return s.Answer(count, 0) + " sizes from " + range;
}

// From the fastest of them to the slowest.
Sentence Times(const Shown& s, const EqualSizes& equal, size_t best,
               const std::string& name) {
  const Sentence least = s.Point(best, name);
  if (equal.slowest == best) return least + " ms";
  return least + " to " + s.Point(equal.slowest, name) + " ms";
}

Sentence Optimum(const Shown& s) {
  const BucketAnswer& a = s.answer;
  Sentence text = Sentence("With ") + s.Of("ranks", 0) + " ranks ";
  text += Sizes(s, a.equal, "equal_sizes");
  text += a.equal.count == 1 ? " is fastest, " : " are equally fast, ";
  text += Times(s, a.equal, a.best, "step_ms.median") + " a step";
  if (a.equal.count == 1) {
    text += Sentence(" (quartiles ") + s.Point(a.best, "step_ms.low") + " to " +
            s.Point(a.best, "step_ms.high") + ")";
  } else {
    text += Sentence(": turn by turn none is reliably slower than ") +
            s.Size(a.best) + ", the least";
  }
  return text + "; by the model " +
         Sizes(s, a.model_equal, "model_equal_sizes") + ", " +
         Times(s, a.model_equal, a.model_best, "model_step_ms") + ".";
}

// The same for the headline.
Sentence Fastest(const Shown& s) {
  const BucketAnswer& a = s.answer;
  if (a.equal.count > 1) {
    Sentence text = Sizes(s, a.equal, "equal_sizes");
    if (a.equal.AreAllBetween()) text = Sentence("bucket sizes from ") + text;
    return text + " are equally fast (" +
           Times(s, a.equal, a.best, "step_ms.median") + " a step)";
  }
  Sentence text = s.Size(a.best) + " buckets are fastest, " +
                  s.Point(a.best, "step_ms.median") + " ms a step";
  if (a.is_smallest_equal) return text;
  return text + "; " + s.Size(0) + " takes " +
         s.Answer("smallest_over_best", 2) + " times as long";
}

// What the figures explain of a difference.
Sentence Explained(double reason_ms, double more_ms, const Sentence& reason) {
  if (reason_ms >= more_ms) return ": enough to explain it.";
  return Sentence(": ") + reason +
         " ms of it, the rest these figures do not explain.";
}

// Why not smaller.
Sentence Latency(const Shown& s) {
  const BucketAnswer& a = s.answer;
  const auto times_alpha = [&s](size_t i, const char* latency) {
    return s.Point(i, "num_buckets", 0) + " x " + s.Of("link.latency_us") +
           " us = " + s.Answer(latency) + " ms";
  };
  const Sentence smallest = times_alpha(0, "smallest_latency_ms");
  if (a.is_smallest_equal) {
    return Sentence("On the left nothing measurable is lost: ") + s.Size(0) +
           " is as fast, its latency " + smallest + ".";
  }
  Sentence text = Sentence("On the left ") + s.Size(0) + " takes " +
                  s.Answer("smallest_more_ms") + " ms more than " +
                  s.Size(a.best);
  if (a.latency_more_ms < kShownMs) {
    return text + ", not for its latency: " + smallest + " for either.";
  }
  text += Sentence("; latency is ") + smallest + ", not " +
          times_alpha(a.best, "best_latency_ms");
  text += Explained(a.latency_more_ms, a.smallest_more_ms,
                    s.Answer("latency_more_ms"));
  if (a.latency_more_ms >= a.smallest_more_ms || a.bucket_us <= 0) return text;
  return text + " A bucket more costs " + s.Answer("bucket_us") + " us in all.";
}

// Why not larger.
Sentence Tail(const Shown& s) {
  const BucketAnswer& a = s.answer;
  const size_t last = s.sweep.points.size() - 1;
  const auto exposed = [&s](size_t i) {
    return s.Point(i, "exposed_ms") + " ms (" + s.Point(i, "model_exposed_ms") +
           " by the model)";
  };
  if (a.is_largest_equal) {
    return Sentence("On the right nothing measurable is lost: ") +
           s.Size(last) + " is as fast, its exposed tail " + exposed(last) +
           ".";
  }
  Sentence text = Sentence("On the right ") + s.Size(last) + " takes " +
                  s.Answer("largest_more_ms") + " ms more than " +
                  s.Size(a.best);
  if (a.tail_more_ms < kShownMs) {
    return text + ", not for its exposed tail: " + exposed(last) + ", there " +
           exposed(a.best) + ".";
  }
  text += Sentence("; its exposed tail is ") + exposed(last) + ", not " +
          exposed(a.best);
  return text +
         Explained(a.tail_more_ms, a.largest_more_ms, s.Answer("tail_more_ms"));
}

Sentence Overlap(const Shown& s) {
  const Quartiles& over = s.sweep.no_overlap_over_best_percent;
  const Sentence ms = s.Of("no_overlap_ms.median") + " ms";
  const std::string path = "no_overlap_over_best_percent.";
  const Sentence percent = s.Of(path + "median") +
                           " % turn by turn (quartiles " + s.Of(path + "low") +
                           " to " + s.Of(path + "high") + ").";
  if (over.low > 0) {
    return Sentence("Without overlap ") + ms + ", longer by " + percent;
  }
  if (over.high < 0) {
    return Sentence("Overlap costs time here: without it ") + ms + ", " +
           percent;
  }
  return Sentence("Overlap gains nothing measurable here: without it ") + ms +
         ", " + percent;
}

// Sizes below a parameter's make the same buckets: they differ by noise alone.
Sentence SameBuckets(const Shown& s) {
  const size_t last = s.answer.same_to;
  if (last == 0) return {};
  size_t least = 0, most = 0;
  for (size_t i = 0; i <= last; ++i) {
    const auto ms = [&s](size_t at) {
      return s.sweep.points[at].step_ms.median;
    };
    if (ms(i) < ms(least)) least = i;
    if (ms(i) > ms(most)) most = i;
  }
  return s.Size(0) + " to " + s.Size(last) + " make the same " +
         s.Point(0, "num_buckets", 0) +
         " buckets, as no parameter is split: their " +
         s.Point(least, "step_ms.median") + " to " +
         s.Point(most, "step_ms.median") + " ms are noise.";
}

// Most of what the model is too slow by is latency that steps do not have.
bool IsLatencyTheModelsExcess(const Shown& s) {
  const BucketPoint& farthest = s.sweep.points[s.answer.farthest];
  const double hidden_us = s.sweep.link.latency_us - s.answer.bucket_us;
  return s.sweep.points[0].num_buckets > s.Best().num_buckets &&
         2 * hidden_us * static_cast<double>(farthest.num_buckets) / 1e3 >=
             farthest.model_step_ms - farthest.step_ms.median;
}

// Averaging adds more than its collectives take, and most of what the model
// lacks.
bool IsAddedWhatTheModelLacks(const Shown& s) {
  const BucketPoint& farthest = s.sweep.points[s.answer.farthest];
  return s.answer.added_ms > s.answer.collectives_ms &&
         2 * s.answer.added_ms >=
             farthest.step_ms.median - farthest.model_step_ms;
}

// The reason that the figures support, if any.
Sentence WhyTheModelIsWrong(const Findings& findings, const Shown& s) {
  const BucketAnswer& a = s.answer;
  const int cores = findings.conditions.cores;
  const bool is_too_fast = a.farthest_percent < 0;
  if (is_too_fast && s.sweep.ranks >= cores && IsAddedWhatTheModelLacks(s)) {
    const std::string who =
        s.sweep.ranks > cores ? " ranks share " : " ranks take all ";
    return s.Of("ranks", 0) + who + Cores(s.figures, cores) +
           ", and communication takes from computing, which the model lets it "
           "have for nothing: there averaging adds " +
           s.Answer("added_ms") + " ms to the " + s.Of("alone_ms.median") +
           " without it, its all-reduces alone take " +
           s.Answer("collectives_ms") + ".";
  }
  if (!is_too_fast && IsLatencyTheModelsExcess(s)) {
    Sentence text = "in a step a bucket more costs ";
    text += a.is_smallest_equal ? Sentence("nothing measurable")
                                : s.Answer("bucket_us") + " us";
    return text + ", not the " + s.Of("link.latency_us") +
           " us of a collective alone: posted ahead, it finds its peers there.";
  }
  return "these figures do not show why.";
}

Sentence Disagreement(const Findings& findings, const Shown& s) {
  const BucketAnswer& a = s.answer;
  if (!std::isfinite(a.farthest_percent)) {
    return "These figures cannot be set against the model's.";
  }
  if (std::abs(a.farthest_percent) < kAgreesPercent) {
    return Sentence("The model is off by ") + s.Answer("farthest_percent") +
           " % at most.";
  }
  return Sentence("The model is off by ") + s.Answer("best_percent") +
         " % at " + s.Size(a.best) + " and by " + s.Answer("farthest_percent") +
         " % at most (" + s.Size(a.farthest) +
         "): " + WhyTheModelIsWrong(findings, s);
}

// ---------------------------------------------------------- recomputation

std::optional<size_t> FindCost(const RecomputeFinding& recompute,
                               const std::string& policy) {
  for (size_t i = 0; i < recompute.costs.size(); ++i) {
    if (recompute.costs[i].policy == policy) return i;
  }
  return std::nullopt;
}

struct Cost {
  const RecomputeCost& cost;
  std::string path;
  const Figures& figures;

  Sentence Of(const std::string& name, int decimals = 1) const {
    return figures.Number(path + "." + name, decimals);
  }
  Sentence MiB(const std::string& name) const {
    return figures.MiB(path + "." + name);
  }
  bool IsAsModelled() const {
    return cost.extra_percent.low <= cost.model_extra_percent &&
           cost.model_extra_percent <= cost.extra_percent.high;
  }
  bool IsMeasurable() const {
    return cost.extra_percent.low > 0 || cost.extra_percent.high < 0;
  }
  bool IsFaster() const {
    return cost.extra_percent.median < cost.model_extra_percent;
  }
};

Cost CostAt(const Findings& findings, const Figures& figures, size_t i) {
  return {findings.recompute.costs[i], Joined("recompute.costs", i), figures};
}

Sentence Measured(const Cost& c) {
  return Sentence("measured ") + c.Of("extra_percent.median") +
         " % (quartiles " + c.Of("extra_percent.low") + " to " +
         c.Of("extra_percent.high") + ")";
}

Sentence FullSentence(const Cost& c, const Cost& none) {
  Sentence text =
      Sentence("One more forward would be ") +
      c.figures.Number("recompute.forward_percent", 1) +
      " % more. Policy full runs the blocks twice, not the embedding and the "
      "output layer: " +
      c.Of("forward_share_percent") + " % of a forward's FLOPs, so " +
      c.Of("model_extra_percent") + " %; " + Measured(c);
  if (c.IsAsModelled()) return text + ", as the FLOPs say.";
  text += Sentence(", ") + c.Of("beyond_model_points") + " points from that: ";
  if (c.IsFaster()) {
    return text + "it may be that less memory is cheaper to get, at most " +
           c.MiB("peak_bytes") + " of activations, not " +
           none.MiB("peak_bytes") + ".";
  }
  return text +
         "norms, softmax and copies, no FLOPs here, run twice too; how long "
         "they take was not measured.";
}

Sentence SelectiveSentence(const Cost& c) {
  const Sentence text =
      Sentence("Policy selective runs the attention's core twice, ") +
      c.Of("model_extra_percent") + " % by FLOPs, " + Measured(c);
  if (c.IsAsModelled()) return text + ", as they say.";
  if (c.IsFaster()) {
    return text + ": it may be for less memory to get, at most " +
           c.MiB("peak_bytes") + " of activations.";
  }
  return text +
         ": softmax and mask, no FLOPs here, run twice too; how long they take "
         "was not measured.";
}

Sentence FormulaOfSaved(const Findings& findings, const Figures& figures) {
  for (size_t i = 0; i < findings.recompute.costs.size(); ++i) {
    const Cost c = CostAt(findings, figures, i);
    if (c.cost.saved_bytes == c.cost.formula_bytes) continue;
    return Sentence("What ") + c.cost.policy +
           " saves DIFFERS from its formula by " + c.Of("difference_bytes", 0) +
           " bytes.";
  }
  return "What each policy saves for backward is its formula's, to the byte.";
}

// Layers, parameters and what one rank works on in a step.
Sentence ModelLine(const Figures& f, const std::string& path) {
  return f.Number(path + ".layers") + " layers (" +
         f.Number(path + ".parameters") + " parameters), " +
         f.Number(path + ".rows") + " x " + f.Number(path + ".context") +
         " tokens a rank";
}

bool AreAlike(const TrainedModel& a, const TrainedModel& b) {
  return a.parameters == b.parameters && a.layers == b.layers &&
         a.rows == b.rows && a.context == b.context;
}

Sentence ModelsLine(const Findings& findings, const Figures& f) {
  Sentence text = "memory ";
  if (AreAlike(findings.memory.model, findings.recompute.model)) {
    text += "and recomputation ";
  } else {
    text = Sentence("recomputation ") + ModelLine(f, "recompute.model") + "; " +
           text;
  }
  text += ModelLine(f, "memory.model") + ", buckets of " +
          f.BucketSize("memory.bucket_bytes");
  return text + "; bucket size " + ModelLine(f, "buckets.model") + ", " +
         NameOfStage(findings.buckets.zero) + ", recompute " +
         findings.buckets.recompute;
}

}  // namespace

Sentence Headline(const Findings& findings, const Figures& figures) {
  Sentence text = "Memory is the formula's to the byte";
  if (AnswerOf(findings.memory).difference_bytes != 0) {
    text = Sentence("Memory DIFFERS from the formula by ") +
           figures.Number("memory.answer.difference_bytes") + " bytes";
  }
  const Shown s = ShownSweep(findings, figures);
  text += Sentence("; with ") + s.Of("ranks", 0) + " ranks " + Fastest(s);
  if (const auto full = FindCost(findings.recompute, "full")) {
    const Cost c = CostAt(findings, figures, *full);
    text += Sentence("; recomputing every block costs ");
    text += c.IsMeasurable() ? c.Of("extra_percent.median", 0) + " % time"
                             : Sentence("no measurable time");
    text += Sentence(" and saves ") + c.Of("peak_saves_percent", 0) +
            " % of the activations' peak";
  }
  return text;
}

std::vector<Sentence> ConditionLines(const Findings& findings,
                                     const Figures& figures) {
  const Figures& f = figures;
  Sentence ranks;
  for (size_t i = 0; i < findings.buckets.sweeps.size(); ++i) {
    if (i > 0) ranks += ", ";
    ranks += f.Number(Joined("buckets.sweeps", i) + ".ranks");
  }
  Sentence versions;
  for (size_t i = 0; i < findings.conditions.versions.size(); ++i) {
    const std::string path = Joined("conditions.versions", i);
    if (i > 0) versions += ", ";
    versions += f.Quote(path + ".name") + " " + f.Quote(path + ".version");
  }
  return {Sentence("TransformerLM of width ") + f.Number("memory.model.dim") +
              ": " + ModelsLine(findings, f) + ".",
          Sentence("Ranks ") + ranks + " as " + f.Quote("conditions.backend") +
              "; data " + f.Quote("conditions.data") + ", seed " +
              Seed(findings.conditions.seed) + "; " +
              f.Quote("conditions.date") + ", " + f.Quote("conditions.host") +
              ", " + Cores(f, findings.conditions.cores) + "; " +
              f.Number("conditions.seconds") + " s in all.",
          versions + "; commit " + f.Quote("conditions.commit") + "."};
}

std::vector<Sentence> MemorySentences(const Findings& findings,
                                      const Figures& figures) {
  const Figures& f = figures;
  const std::string a = "memory.answer.";
  const Sentence what = f.Number(a + "cases") + " jobs x " +
                        f.Number(a + "points") + " points of a step x " +
                        f.Number(a + "categories") + " categories";
  Sentence first = what + ", every rank: " + f.Number(a + "difference_bytes") +
                   " bytes between budget and ledger.";
  if (AnswerOf(findings.memory).difference_bytes != 0) {
    const size_t i = FirstThatDiffers(findings.memory);
    const MemoryCase& c = findings.memory.cases[i];
    first = what + ": budget and ledger DIFFER by up to " +
            f.Number(a + "difference_bytes") + " bytes, first with " +
            f.Number(Joined("memory.cases", i) + ".ranks") + " ranks, " +
            NameOfStage(c.zero) + ", recompute " + c.recompute + ".";
  }
  return {first, Sentence("With ") + f.Number(a + "ranks") +
                     " ranks ZeRO-1 saves " + f.MiB(a + "zero1_saves_bytes") +
                     " a rank, ZeRO-2 " + f.MiB(a + "zero2_saves_bytes") +
                     ", full recomputation " +
                     f.MiB(a + "recompute_saves_bytes") + ", " +
                     f.Number(a + "recompute_saves_percent", 0) +
                     " % of the activations after forward, " +
                     f.Number(a + "recompute_saves_peak_percent", 0) +
                     " % of their peak."};
}

std::vector<Sentence> BucketSentences(const Findings& findings,
                                      const Figures& figures) {
  const Shown s = ShownSweep(findings, figures);
  std::vector<Sentence> all = {Optimum(s)};
  const Sentence same = SameBuckets(s);
  if (!same.IsEmpty()) all.push_back(same);
  for (const Sentence& sentence :
       {Latency(s), Tail(s), Overlap(s), Disagreement(findings, s)}) {
    all.push_back(sentence);
  }
  return all;
}

std::vector<Sentence> RecomputeSentences(const Findings& findings,
                                         const Figures& figures) {
  std::vector<Sentence> all;
  const Cost none = CostAt(findings, figures, 0);
  if (const auto full = FindCost(findings.recompute, "full")) {
    all.push_back(FullSentence(CostAt(findings, figures, *full), none));
  }
  if (const auto selective = FindCost(findings.recompute, "selective")) {
    all.push_back(SelectiveSentence(CostAt(findings, figures, *selective)));
  }
  all.push_back(FormulaOfSaved(findings, figures));
  return all;
}

std::vector<Sentence> LimitSentences(const Findings& findings,
                                     const Figures& figures) {
  const bool are_threads = findings.conditions.backend == "threads";
  Sentence ranks;
  int most = 0;
  for (const BucketSweep& sweep : findings.buckets.sweeps) {
    most = std::max(most, sweep.ranks);
  }
  if (most > findings.conditions.cores) {
    ranks = Sentence("More ranks than the ") +
            Cores(figures, findings.conditions.cores) +
            " share them: their times are not those of a core each.";
  }
  std::vector<Sentence> all = {
      are_threads
          ? Sentence("Shared memory is not a network: alpha and beta are this "
                     "host's, a cluster's optimum may lie elsewhere.")
          : Sentence("Processes of one host are no network: alpha and beta are "
                     "this host's, a cluster's optimum may lie elsewhere."),
      Sentence("Times are medians with quartiles of ") +
          ShownSweep(findings, figures).Of("turns", 0) +
          " interleaved turns of every bucket size and " +
          figures.Number("recompute.turns") +
          " of every policy, on one host, warm-up left out."};
  const int turns = std::min(ShownSweep(findings, figures).sweep.turns,
                             findings.recompute.turns);
  if (turns < kFewestTurns) {
    all.push_back("So few turns are a trial, no figures to rely on.");
  }
  if (!ranks.IsEmpty()) all.push_back(ranks);
  return all;
}

}  // namespace trainsys
