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

std::string Joined(const std::string& path, size_t index) {
  return fmt::format("{}.{}", path, index);
}

size_t FirstThatDiffers(const MemoryFinding& memory) {
  size_t i = 0;
  while (memory.cases[i].difference_bytes == 0) ++i;
  return i;
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

Sentence Optimum(const Shown& s) {
  const BucketAnswer& a = s.answer;
  Sentence text = Sentence("With ") + s.Of("ranks", 0) + " ranks " +
                  s.Size(a.best) + " is fastest, " +
                  s.Point(a.best, "step_ms.median") + " ms a step (quartiles " +
                  s.Point(a.best, "step_ms.low") + " to " +
                  s.Point(a.best, "step_ms.high") + "; ";
  if (a.equal_from == a.equal_to) {
    text += "no other size is within them";
  } else {
    text +=
        s.Size(a.equal_from) + " to " + s.Size(a.equal_to) + " are within them";
  }
  text += "); by the model ";
  return text + s.Size(a.model_best) + ", " +
         s.Point(a.model_best, "model_step_ms") + " ms.";
}

// Why not smaller.
Sentence Latency(const Shown& s) {
  const BucketAnswer& a = s.answer;
  const auto times_alpha = [&s](size_t i, const char* latency) {
    return s.Point(i, "num_buckets", 0) + " x " + s.Of("link.latency_us") +
           " us = " + s.Answer(latency) + " ms";
  };
  if (a.best == 0) {
    return Sentence(
               "On the left nothing is lost: the smallest size is the "
               "fastest, its latency ") +
           times_alpha(0, "smallest_latency_ms") + ".";
  }
  Sentence text = Sentence("On the left latency: ") +
                  times_alpha(0, "smallest_latency_ms") + " with " + s.Size(0) +
                  ", ";
  text += times_alpha(a.best, "best_latency_ms") + " with " + s.Size(a.best);
  if (a.bucket_us == 0) return text + ".";
  return text + "; in a step a bucket more costs " + s.Answer("bucket_us") +
         " us.";
}

// Why not larger.
Sentence Tail(const Shown& s) {
  const size_t last = s.sweep.points.size() - 1;
  const size_t best = s.answer.best;
  const auto exposed = [&s](size_t i) {
    return s.Point(i, "exposed_ms") + " ms (" + s.Point(i, "model_exposed_ms") +
           " by the model)";
  };
  if (best == last) {
    return Sentence(
               "On the right nothing is lost: the largest size is the "
               "fastest, its exposed tail ") +
           exposed(last) + ".";
  }
  return Sentence("On the right the exposed tail: after the last gradient ") +
         s.Size(last) + " buckets wait " + exposed(last) + ", " + s.Size(best) +
         " " + exposed(best) + ".";
}

Sentence Overlap(const Shown& s) {
  const double without = s.sweep.no_overlap_ms.median;
  const Sentence ms = s.Of("no_overlap_ms.median") + " ms";
  if (without > s.Best().step_ms.high) {
    return Sentence("Without overlap ") + ms + ", " +
           s.Answer("no_overlap_over_best", 2) + " times as long.";
  }
  if (without < s.Best().step_ms.low) {
    return Sentence("Overlap costs time here: without it ") + ms + ".";
  }
  return Sentence("Overlap gains nothing here: without it ") + ms +
         ", within the quartiles.";
}

// The reason that the figures support, if any.
Sentence WhyTheModelIsWrong(const Findings& findings, const Shown& s) {
  const BucketAnswer& a = s.answer;
  const int cores = findings.conditions.cores;
  const bool is_too_fast = a.farthest_percent < 0;
  if (is_too_fast && s.sweep.ranks >= cores && a.added_ms > 0) {
    const std::string who =
        s.sweep.ranks > cores ? " ranks share " : " ranks take all ";
    return s.Of("ranks", 0) + who + s.figures.Number("conditions.cores") +
           " cores, and communication takes the cores that compute, which the "
           "model lets it have for nothing: averaging adds " +
           s.Answer("added_ms") + " ms to the " + s.Of("alone_ms.median") +
           " without it, its all-reduces alone take " +
           s.Answer("collectives_ms") + ".";
  }
  if (!is_too_fast && a.bucket_us < s.sweep.link.latency_us &&
      s.sweep.points[0].num_buckets > s.Best().num_buckets) {
    return Sentence("in a step a bucket more costs ") + s.Answer("bucket_us") +
           " us, not the " + s.Of("link.latency_us") +
           " us of a collective alone: posted ahead, it finds its peers there.";
  }
  return "these figures do not show why.";
}

Sentence Disagreement(const Findings& findings, const Shown& s) {
  const BucketAnswer& a = s.answer;
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
    return text + "less memory is cheaper to get, at most " +
           c.MiB("peak_bytes") + " of activations, not " +
           none.MiB("peak_bytes") + ".";
  }
  return text + "norms, softmax and copies, no FLOPs here, run twice too.";
}

Sentence SelectiveSentence(const Cost& c) {
  const Sentence text =
      Sentence("Policy selective runs the attention's core twice, ") +
      c.Of("model_extra_percent") + " % by FLOPs, " + Measured(c);
  if (c.IsAsModelled()) return text + ", as they say.";
  if (c.IsFaster()) {
    return text + ": with less memory to get, at most " + c.MiB("peak_bytes") +
           " of activations.";
  }
  return text +
         ": softmax and mask are no FLOPs here, but much memory to go through.";
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
  text += Sentence("; ") + s.Size(s.answer.best) + " buckets are fastest, " +
          s.Point(s.answer.best, "step_ms.median") + " ms a step";
  if (s.answer.best != 0) {
    text +=
        Sentence(" (") + s.Size(0) + ": " + s.Point(0, "step_ms.median") + ")";
  }
  if (const auto full = FindCost(findings.recompute, "full")) {
    const Cost c = CostAt(findings, figures, *full);
    text += Sentence("; recomputing every block costs ") +
            c.Of("extra_percent.median", 0) + " % time and saves " +
            c.Of("peak_saves_percent", 0) + " % of the activations' peak";
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
              f.Number("conditions.seed") + "; " + f.Quote("conditions.date") +
              ", " + f.Quote("conditions.host") + ", " +
              f.Number("conditions.cores") + " cores; " +
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
  return {Optimum(s), Latency(s), Tail(s), Overlap(s),
          Disagreement(findings, s)};
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
            figures.Number("conditions.cores") +
            " cores share them: their steps are longer for that alone.";
  }
  std::vector<Sentence> all = {
      are_threads
          ? Sentence("Shared memory is not a network: alpha and beta are this "
                     "host's, a cluster's optimum lies elsewhere.")
          : Sentence("Processes of one host are no network: alpha and beta are "
                     "this host's, a cluster's optimum lies elsewhere."),
      Sentence("Times are medians with quartiles of ") +
          ShownSweep(findings, figures).Of("turns", 0) +
          " interleaved turns of every bucket size and " +
          figures.Number("recompute.turns") +
          " of every policy, on one host, warm-up left out."};
  if (!ranks.IsEmpty()) all.push_back(ranks);
  return all;
}

}  // namespace trainsys
