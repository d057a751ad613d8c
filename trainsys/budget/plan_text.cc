#include <fmt/core.h>

#include <algorithm>

#include "collectives/errors.h"
#include "trainsys/budget/plan_report.h"

namespace trainsys {
namespace {

double Gb(int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

double Percent(int64_t part, int64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

PlanLine Largest(const MemoryPlan& plan) {
  const auto categories = PlanLines(plan);
  return *std::max_element(
      categories.begin(), categories.end(),
      [](const PlanLine& a, const PlanLine& b) { return a.bytes < b.bytes; });
}

// A path may be long; its end tells more.
std::string ShortName(const std::string& name) {
  constexpr size_t kMost = 24;
  if (name.size() <= kMost) return name;
  size_t from = name.size() - (kMost - 3);
  const auto is_inside_a_character = [&name](size_t at) {
    return (static_cast<unsigned char>(name[at]) & 0xC0) == 0x80;  // UTF-8
  };
  while (from < name.size() && is_inside_a_character(from)) ++from;
  return "..." + name.substr(from);
}

std::string RowsAtMost(const MemoryPlan& plan) {
  return fmt::format("at most {} rows of {} positions fit", LargestBatch(plan),
                     plan.request.positions);
}

std::string Answer(const MemoryPlan& plan,
                   const std::vector<Remedy>& remedies) {
  const std::string needs = fmt::format(
      "{} needs {:.2f} of {:.2f} GB a rank", ShortName(plan.request.shape.name),
      Gb(plan.Total()), Gb(plan.request.device_bytes));
  const PlanLine largest = Largest(plan);
  const std::string share =
      fmt::format("{}: {:.2f} GB, {:.0f} %", largest.name, Gb(largest.bytes),
                  Percent(largest.bytes, plan.Total()));
  if (plan.Fits()) {
    return fmt::format("fits: {}\nmost of it {}\n{}\n", needs, share,
                       RowsAtMost(plan));
  }
  std::string help = "no flag would help";
  if (!remedies.empty()) {
    const Remedy& best = remedies[0];
    help = fmt::format("most would help {}: {:.2f} GB, {}", best.change,
                       Gb(best.total_bytes), best.fits ? "fits" : "not enough");
  }
  return fmt::format("does not fit: {}\nbecause of {}\n{}\n", needs, share,
                     help);
}

std::string Setup(const MemoryPlan& plan) {
  const PlanRequest& r = plan.request;
  const ElementBytes size = BytesOf(r.states.precision, r.states.optimizer);
  return fmt::format(
      "{} parameters; {} + {} + {} bytes each ({}, {})\n"
      "{} ranks, ZeRO-{}, partition {}; {} x {} positions a rank\n"
      "recompute {}, attention {}; figures of rank {}, the largest\n",
      plan.parameters, size.parameter, size.gradient, size.optimizer,
      NameOf(r.states.precision), NameOf(r.states.optimizer), r.states.ranks,
      r.states.zero_stage, NameOf(r.states.partition), r.rows, r.positions,
      r.recompute, NameOf(r.attention), r.states.rank);
}

std::string Row(const std::string& name, int64_t bytes) {
  return fmt::format("  {:<40}{:>12.3f}", name, Gb(bytes));
}

std::string Table(const MemoryPlan& plan) {
  std::string text = "memory of a rank, GB (1e9 bytes)\n";
  for (const PlanLine& category : PlanLines(plan)) {
    text += Row(category.name, category.bytes) +
            fmt::format("{:>8.1f} %\n", Percent(category.bytes, plan.Total()));
  }
  text += Row("all", plan.Total()) + "   100.0 %\n";
  text += Row("device", plan.request.device_bytes) + "\n";
  return text +
         "  not counted: gradients of activations, temporaries, the runtime\n";
}

std::string HowParametersTravel(const StatesOptions& states) {
  const bool is_flat = states.partition == Partition::kFlat;
  return std::string("parameters, ") + (is_flat ? "all-gather" : "broadcasts") +
         (states.zero_stage < 3 ? "" : " twice");
}

std::string TrafficTable(const MemoryPlan& plan) {
  const StepTraffic& traffic = plan.traffic;
  const StatesOptions& states = plan.request.states;
  const int stage = states.zero_stage;
  const auto line = [](const std::string& name, int64_t bytes) {
    return Row(name, bytes) + "\n";
  };
  std::string text = "sent by a rank in a step, GB, by rule\n";
  text += line(states.AllReduces() ? "gradients, all-reduce"
                                   : "gradients, reduce-scatter",
               traffic.gradients);
  if (stage > 0) text += line(HowParametersTravel(states), traffic.parameters);
  text += line("all", traffic.Total());
  if (stage == 1 && states.AllReduces()) {
    text += line("gradients, if by reduce-scatter",
                 traffic.gradients_by_reduce_scatter);
  }
  if (stage == 1 || stage == 2) {
    text += line("optimizer state in place of parameters",
                 traffic.optimizer_state_instead);
  }
  return text;
}

std::string RemedyTable(const std::vector<Remedy>& remedies) {
  if (remedies.empty()) return "";
  std::string text = "\nwith a change, GB a rank\n";
  for (const Remedy& remedy : remedies) {
    text += Row(remedy.change, remedy.total_bytes) +
            (remedy.fits ? "   fits\n" : "\n");
  }
  return text;
}

}  // namespace

AttentionKernel AttentionNamed(const std::string& name) {
  if (name == "full") return AttentionKernel::kFull;
  if (name == "flash") return AttentionKernel::kFlash;
  throw collectives::InvalidArgument("attention is '" + name +
                                     "', expected full or flash");
}

std::string NameOf(AttentionKernel attention) {
  return attention == AttentionKernel::kFull ? "full" : "flash";
}

std::string AsText(const MemoryPlan& plan) {
  const auto remedies = plan.Fits() ? std::vector<Remedy>{} : Remedies(plan);
  return Answer(plan, remedies) + "\n" + Setup(plan) + "\n" + Table(plan) +
         "\n" + TrafficTable(plan) + RemedyTable(remedies);
}

}  // namespace trainsys
