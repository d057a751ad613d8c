#include "trainsys/report/findings_tables.h"

#include <fmt/core.h>

#include <functional>

#include "trainsys/report/answers.h"

namespace trainsys {
namespace {

constexpr double kBytesPerUsInGBs = 1e3;

using Row = std::vector<Sentence>;

std::string At(const std::string& path, size_t index,
               const std::string& name = "") {
  return fmt::format("{}.{}{}{}", path, index, name.empty() ? "" : ".", name);
}

Sentence Difference(const Figures& f, const std::string& path) {
  const Sentence bytes = f.Number(path);
  return f.Value(path) == 0 ? bytes : bytes + " DIFFERS";
}

Sentence FormulaWithNumbers(const Figures& f, const std::string& path) {
  const Sentence formula = f.Quote(path + ".formula");
  const std::string numbers = f.Text(path + ".numbers");
  if (numbers.empty() || numbers == f.Text(path + ".formula")) return formula;
  return formula + " = " + f.Quote(path + ".numbers");
}

// The case's number in memory.cases.
size_t IndexOf(const MemoryFinding& memory, const MemoryCase& c) {
  return static_cast<size_t>(&c - memory.cases.data());
}

// By that number of ranks: the case that differs most.
const MemoryCase* MostDifferent(const MemoryFinding& memory, int ranks) {
  const MemoryCase* most = nullptr;
  for (const MemoryCase& c : memory.cases) {
    if (c.ranks != ranks) continue;
    if (!most || c.difference_bytes > most->difference_bytes) most = &c;
  }
  return most;
}

}  // namespace

Table FormulaTable(const Findings& findings, const Figures& figures) {
  static_cast<void>(findings);
  Table table{"Memory of a rank after forward, in bytes",
              {"what", "formula", "by formula", "by ledger", "difference"},
              {}};
  const std::string path = "memory.formulas";
  for (size_t i = 0; i < figures.Size(path); ++i) {
    table.rows.push_back(
        {figures.Quote(At(path, i, "what")),
         FormulaWithNumbers(figures, At(path, i)),
         figures.Number(At(path, i, "formula_bytes")),
         figures.Number(At(path, i, "ledger_bytes")),
         Difference(figures, At(path, i, "difference_bytes"))});
  }
  return table;
}

Table TotalsTable(const Findings& findings, const Figures& figures) {
  const MemoryFinding& memory = findings.memory;
  Table table{
      "All of a rank after forward by ledger, in bytes, without and "
      "with full recomputation",
      {"ranks"},
      {}};
  for (const int zero : {0, 1, 2}) {
    table.heads.push_back(NameOfStage(zero));
    table.heads.push_back(NameOfStage(zero) + ", full");
  }
  table.heads.push_back("difference");
  for (const int ranks : RanksOf(memory)) {
    Row row;
    const auto path = [&memory](const MemoryCase& c) {
      return At("memory.cases", IndexOf(memory, c));
    };
    const MemoryCase* most = MostDifferent(memory, ranks);
    row.push_back(figures.Number(path(*most) + ".ranks"));
    for (const int zero : {0, 1, 2}) {
      for (const char* recompute : {"none", "full"}) {
        const MemoryCase* c = FindCase(memory, ranks, zero, recompute);
        row.push_back(
            c == nullptr ? Sentence("not run")
                         : figures.Number(path(*c) +
                                          ".ledger_bytes.after_forward.total"));
      }
    }
    row.push_back(Difference(figures, path(*most) + ".difference_bytes"));
    table.rows.push_back(row);
  }
  return table;
}

Table SweepTable(const Findings& findings, const Figures& figures) {
  const Figures& f = figures;
  const size_t sweeps = findings.buckets.sweeps.size();
  Table table{"By number of ranks, medians in ms", {"ranks"}, {}};
  const auto each = [&](const std::function<Sentence(size_t)>& cell) {
    Row row;
    for (size_t i = 0; i < sweeps; ++i) row.push_back(cell(i));
    return row;
  };
  const auto sweep = [](size_t i) { return At("buckets.sweeps", i); };
  for (const Sentence& ranks :
       each([&](size_t i) { return f.Number(sweep(i) + ".ranks"); })) {
    table.heads.push_back(ranks);
  }
  const auto add = [&](const std::string& head,
                       const std::function<Sentence(size_t)>& cell) {
    Row row = each(cell);
    row.insert(row.begin(), head);
    table.rows.push_back(row);
  };
  const auto number = [&](const std::string& name, int decimals,
                          double unit = 1) {
    return [&f, sweep, name, decimals, unit](size_t i) {
      return f.Number(sweep(i) + "." + name, decimals, unit);
    };
  };
  const auto answer = [&](size_t i) {
    return AnswerOf(findings.buckets.sweeps[i],
                    findings.buckets.model.parameters);
  };
  const auto sizes = [&](const std::string& path, const EqualSizes& equal) {
    const Sentence from = f.BucketSize(path + "_from_bytes");
    if (equal.count == 1) return from;
    const Sentence range = from + "–" + f.BucketSize(path + "_to_bytes");
    if (equal.AreAllBetween()) return range;
    return f.Number(path + "_sizes") + " in " + range;
  };
  add("as fast", [&](size_t i) {
    return sizes(sweep(i) + ".answer.equal", answer(i).equal);
  });
  add("least median", [&](size_t i) {
    return f.BucketSize(sweep(i) + ".answer.best_bytes") + ", " +
           f.Number(At(sweep(i) + ".points", answer(i).best, "step_ms.median"),
                    1);
  });
  add("as fast by model", [&](size_t i) {
    return sizes(sweep(i) + ".answer.model_equal", answer(i).model_equal);
  });
  add("least by model", [&](size_t i) {
    return f.Number(
        At(sweep(i) + ".points", answer(i).model_best, "model_step_ms"), 1);
  });
  add("without overlap", number("no_overlap_ms.median", 1));
  add("the same by model", number("model_no_overlap_ms", 1));
  add("without averaging", number("alone_ms.median", 1));
  add("alpha, us", number("link.latency_us", 1));
  add("beta, GB/s", number("link.bytes_per_us", 2, kBytesPerUsInGBs));
  add("both off by up to, %", number("answer.fit_error_percent", 0));
  add("model off by up to, %", number("answer.farthest_percent", 1));
  return table;
}

Table AllSizesTable(const Findings& findings, const Figures& figures) {
  const Figures& f = figures;
  Table table{"Every bucket size, ms a step",
              {"ranks, size", "buckets", "median", "lower quartile",
               "upper quartile", "over least, %", "its lower quartile", "model",
               "exposed", "exposed by model"},
              {}};
  for (size_t s = 0; s < findings.buckets.sweeps.size(); ++s) {
    const std::string sweep = At("buckets.sweeps", s);
    for (size_t i = 0; i < findings.buckets.sweeps[s].points.size(); ++i) {
      const std::string point = At(sweep + ".points", i) + ".";
      table.rows.push_back({f.Number(sweep + ".ranks") + ", " +
                                f.BucketSize(point + "bucket_bytes"),
                            f.Number(point + "num_buckets"),
                            f.Number(point + "step_ms.median", 1),
                            f.Number(point + "step_ms.low", 1),
                            f.Number(point + "step_ms.high", 1),
                            f.Number(point + "over_best_percent.median", 1),
                            f.Number(point + "over_best_percent.low", 1),
                            f.Number(point + "model_step_ms", 1),
                            f.Number(point + "exposed_ms", 2),
                            f.Number(point + "model_exposed_ms", 2)});
    }
  }
  return table;
}

Table RecomputeTable(const Findings& findings, const Figures& figures) {
  const Figures& f = figures;
  Table table{
      "Forward and backward on one rank, extra turn by turn; activations in "
      "MiB",
      {"policy", "ms", "extra %", "by FLOPs %", "kept", "peak", "peak saved %"},
      {}};
  for (size_t i = 0; i < findings.recompute.costs.size(); ++i) {
    const std::string cost = At("recompute.costs", i) + ".";
    constexpr double kMiB = 1 << 20;
    table.rows.push_back({f.Quote(cost + "policy"),
                          f.Number(cost + "step_ms.median", 1),
                          f.Number(cost + "extra_percent.median", 1),
                          f.Number(cost + "model_extra_percent", 1),
                          f.Number(cost + "saved_bytes", 1, kMiB),
                          f.Number(cost + "peak_bytes", 1, kMiB),
                          f.Number(cost + "peak_saves_percent", 0)});
  }
  return table;
}

}  // namespace trainsys
