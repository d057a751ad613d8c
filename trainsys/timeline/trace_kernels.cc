#include "trainsys/timeline/trace_kernels.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::Operation;
using collectives::PhaseRecord;
using collectives::Record;
using collectives::Recorder;
using collectives::RecordState;
using nlohmann::json;

constexpr size_t kFewestSteps = 3;  // one to spare: the last is left out
constexpr int kFirstCollectiveStream = 20;
constexpr int64_t kShortestKernelNs = 1000;
constexpr size_t kMostRanksNamed = 30;

bool IsBefore(const TraceSpan& a, const TraceSpan& b) {
  return a.begin_ns < b.begin_ns;
}

// Those whose collectives are all still recorded.
TraceSteps WholeSteps(const Recorder& recorder) {
  const std::vector<Record> records = recorder.Records();
  const bool has_gap = recorder.lost() > 0 && !records.empty();
  const int64_t first_ns = has_gap ? records.front().posted_ns : 0;
  TraceSteps steps;
  for (const PhaseRecord& phase : recorder.Phases()) {
    if (phase.name == "step" && phase.end_ns > phase.begin_ns &&
        phase.begin_ns >= first_ns) {
      steps[phase.step] = phase;
    }
  }
  return steps;
}

std::vector<TraceSpan> Waits(const std::vector<Record>& records) {
  std::vector<TraceSpan> waits;
  for (const Record& record : records) {
    if (record.wait_ended_ns > record.wait_began_ns) {
      waits.push_back({record.wait_began_ns, record.wait_ended_ns});
    }
  }
  std::sort(waits.begin(), waits.end(), IsBefore);
  return waits;
}

// What of `phase` is in none of the waits.
std::vector<TraceSpan> Without(const std::vector<TraceSpan>& waits,
                               const PhaseRecord& phase) {
  std::vector<TraceSpan> rest;
  int64_t from_ns = phase.begin_ns;
  for (const TraceSpan& wait : waits) {
    if (wait.begin_ns >= phase.end_ns) break;
    if (wait.begin_ns > from_ns) rest.push_back({from_ns, wait.begin_ns});
    from_ns = std::max(from_ns, wait.end_ns);
  }
  if (from_ns < phase.end_ns) rest.push_back({from_ns, phase.end_ns});
  return rest;
}

// Lower case and not at the beginning: no word of it is one that the tools
// take for a copy, a synchronization or a collective.
std::string ComputeName(const std::string& phase) {
  std::string name = "compute " + phase;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::vector<TraceKernel> ComputeKernels(const std::vector<PhaseRecord>& phases,
                                        const std::vector<Record>& records) {
  const std::vector<TraceSpan> waits = Waits(records);
  std::vector<TraceKernel> kernels;
  for (const PhaseRecord& phase : phases) {
    for (const TraceSpan& span : Without(waits, phase)) {
      const int64_t begin_ns = span.begin_ns + kLaunchNs;
      if (span.end_ns - begin_ns < kShortestKernelNs) continue;
      kernels.push_back({.name = ComputeName(phase.name),
                         .span = {begin_ns, span.end_ns},
                         .launched_ns = span.begin_ns,
                         .args = {{"trainsys step", phase.step}},
                         .posted = nullptr});
    }
  }
  return kernels;
}

std::string KernelName(const Record& record) {
  constexpr const char* kOperations[] = {"AllReduce", "ReduceScatter",
                                         "AllGather", "Broadcast"};
  constexpr const char* kReductions[] = {"Sum", "Avg", "Prod", "Min", "Max"};
  std::string name = "ncclDevKernel_";
  name += kOperations[static_cast<size_t>(record.operation)];
  if (Reduces(record.operation)) {
    name += fmt::format("_{}_{}",
                        kReductions[static_cast<size_t>(record.reduce_op)],
                        Name(record.dtype));
  }
  return name + "_RING_LL(ncclDevComm*)";
}

std::string RanksText(size_t ranks) {
  std::string text;
  for (size_t r = 0; r < ranks; ++r) {
    if (ranks > kMostRanksNamed && r + 1 == kMostRanksNamed) {
      return fmt::format("[{}, ..., {}]", text, ranks - 1);
    }
    text += fmt::format("{}{}", r ? ", " : "", r);
  }
  return "[" + text + "]";
}

// What readers of traces look for. Both sides of a scatter or gather count as
// even: a record has the whole only.
json CollectiveArgs(const Record& record, size_t ranks) {
  constexpr const char* kNames[] = {"allreduce", "_reduce_scatter_base",
                                    "_allgather_base", "broadcast"};
  constexpr const char* kDTypes[] = {"Double", "Float", "BFloat16", "Half",
                                     "Long",   "Int",   "Byte"};
  const int64_t part = record.elems / static_cast<int64_t>(ranks);
  const bool gathers = record.operation == Operation::kAllGather;
  const bool scatters = record.operation == Operation::kReduceScatter;
  return {{"Collective name", kNames[static_cast<size_t>(record.operation)]},
          {"In msg nelems", gathers ? part : record.elems},
          {"Out msg nelems", scatters ? part : record.elems},
          {"In split size", "[]"},
          {"Out split size", "[]"},
          {"Group size", ranks},
          {"dtype", kDTypes[static_cast<size_t>(record.dtype)]},
          {"Process Group Name", "0"},
          {"Process Group Description", "default_pg"},
          {"Process Group Ranks", RanksText(ranks)},
          {"Rank", record.rank},
          {"Seq", record.sequence}};
}

TraceKernel CollectiveKernel(const Record& record, size_t ranks,
                             const std::string& backend) {
  const int64_t matched_ns = std::max(record.posted_ns, record.matched_ns);
  const int64_t begin_ns = std::max(matched_ns, record.posted_ns + kLaunchNs);
  json call = CollectiveArgs(record, ranks);
  json args = call;
  call["Is asynchronized op"] = record.is_async;
  args.update({{"trainsys label", record.label},
               {"trainsys channel", record.channel},
               {"trainsys backend", backend},
               {"trainsys bytes sent by rule", record.sent_bytes},
               {"trainsys us from post to match",
                Microseconds(matched_ns - record.posted_ns)},
               {"trainsys us waited for peers",
                Microseconds(record.WaitedForPeersNs())},
               {"trainsys us waited for data",
                Microseconds(record.WaitedForDataNs())}});
  return {.name = KernelName(record),
          .span = {begin_ns,
                   std::max(record.done_ns, begin_ns + kShortestKernelNs)},
          .launched_ns = record.posted_ns,
          .args = std::move(args),
          .posted = std::move(call)};
}

// Each on the first stream that is free.
void AssignStreams(std::vector<TraceKernel>& collectives) {
  std::stable_sort(collectives.begin(), collectives.end(),
                   [](const TraceKernel& a, const TraceKernel& b) {
                     return IsBefore(a.span, b.span);
                   });
  std::vector<int64_t> busy_until_ns;
  for (TraceKernel& kernel : collectives) {
    const auto free = std::find_if(
        busy_until_ns.begin(), busy_until_ns.end(),
        [&](int64_t until_ns) { return until_ns <= kernel.span.begin_ns; });
    kernel.stream =
        kFirstCollectiveStream + static_cast<int>(free - busy_until_ns.begin());
    if (free == busy_until_ns.end()) {
      busy_until_ns.push_back(kernel.span.end_ns);
    } else {
      *free = kernel.span.end_ns;
    }
  }
}

// Of the collectives that moved data and were posted in these steps.
std::vector<TraceKernel> CollectiveKernels(const std::vector<Record>& records,
                                           const TraceSpan& window,
                                           size_t ranks,
                                           const std::string& backend) {
  std::vector<TraceKernel> kernels;
  for (const Record& record : records) {
    if (record.state == RecordState::kDone && record.bytes > 0 &&
        record.operation <= Operation::kBroadcast &&
        record.posted_ns >= window.begin_ns &&
        record.posted_ns < window.end_ns) {
      kernels.push_back(CollectiveKernel(record, ranks, backend));
    }
  }
  AssignStreams(kernels);
  return kernels;
}

}  // namespace

std::vector<TraceSteps> StepsOnAllRanks(std::span<const Recorder> recorders,
                                        size_t most_steps) {
  std::vector<TraceSteps> steps;
  std::map<int64_t, size_t> num_ranks;
  for (const Recorder& recorder : recorders) {
    steps.push_back(WholeSteps(recorder));
    for (const auto& [step, phase] : steps.back()) ++num_ranks[step];
  }
  std::erase_if(num_ranks, [&](const auto& of_step) {
    return of_step.second < recorders.size();
  });
  while (num_ranks.size() > most_steps) num_ranks.erase(num_ranks.begin());
  if (num_ranks.size() < kFewestSteps) {
    throw collectives::InvalidArgument(fmt::format(
        "a trace takes at least {} steps that all ranks have recorded whole, "
        "and there are {}: train more of them, or record more collectives",
        kFewestSteps, num_ranks.size()));
  }
  for (TraceSteps& of_rank : steps) {
    std::erase_if(of_rank, [&](const auto& step) {
      return !num_ranks.contains(step.first);
    });
  }
  return steps;
}

std::vector<PhaseRecord> PhasesOf(const Recorder& recorder,
                                  const TraceSteps& steps) {
  std::vector<PhaseRecord> inside;
  for (const PhaseRecord& phase : recorder.Phases()) {
    const auto step = steps.find(phase.step);
    if (phase.name != "step" && step != steps.end() &&
        phase.begin_ns >= step->second.begin_ns &&
        phase.end_ns > phase.begin_ns && phase.end_ns <= step->second.end_ns) {
      inside.push_back(phase);
    }
  }
  std::stable_sort(inside.begin(), inside.end(),
                   [](const PhaseRecord& a, const PhaseRecord& b) {
                     return a.begin_ns < b.begin_ns;
                   });
  std::vector<PhaseRecord> phases;
  for (PhaseRecord& phase : inside) {
    if (phases.empty() || phase.begin_ns >= phases.back().end_ns) {
      phases.push_back(std::move(phase));
    }
  }
  return phases;
}

std::vector<TraceKernel> KernelsOf(const Recorder& recorder,
                                   const TraceSteps& steps,
                                   const std::vector<PhaseRecord>& phases,
                                   size_t ranks, const std::string& backend) {
  const std::vector<Record> records = recorder.Records();
  TraceSpan window{steps.begin()->second.begin_ns, 0};
  for (const auto& [number, step] : steps) {
    window.begin_ns = std::min(window.begin_ns, step.begin_ns);
    window.end_ns = std::max(window.end_ns, step.end_ns);
  }
  std::vector<TraceKernel> kernels = ComputeKernels(phases, records);
  for (TraceKernel& k : CollectiveKernels(records, window, ranks, backend)) {
    kernels.push_back(std::move(k));
  }
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const TraceKernel& a, const TraceKernel& b) {
                     return a.launched_ns < b.launched_ns;
                   });
  return kernels;
}

}  // namespace trainsys
