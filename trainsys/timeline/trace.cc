#include "trainsys/timeline/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "trainsys/timeline/trace_kernels.h"

namespace trainsys {
namespace {

using collectives::PhaseRecord;
using collectives::Recorder;
using nlohmann::json;

constexpr int kMainThread = 1;

int64_t FirstBeginNs(const std::vector<TraceSteps>& steps) {
  int64_t first_ns = steps.front().begin()->second.begin_ns;
  for (const TraceSteps& of_rank : steps) {
    for (const auto& [step, phase] : of_rank) {
      first_ns = std::min(first_ns, phase.begin_ns);
    }
  }
  return first_ns;
}

// The events of one rank, with times that start at `base_ns`.
class Events {
 public:
  Events(int rank, int64_t base_ns) : rank_(rank), base_ns_(base_ns) {}

  void Name(const std::vector<int>& streams) {
    const std::string rank = fmt::format("rank {}", rank_);
    Meta("process_name", MainProcess(), 0, {{"name", rank}});
    Meta("process_sort_index", MainProcess(), 0, {{"sort_index", 2 * rank_}});
    Meta("thread_name", MainProcess(), kMainThread, {{"name", "main"}});
    Meta("process_name", Streams(), 0, {{"name", rank + " streams"}});
    Meta("process_sort_index", Streams(), 0, {{"sort_index", 2 * rank_ + 1}});
    for (int stream : streams) {
      const bool is_compute = stream == kComputeStream;
      Meta("thread_name", Streams(), stream,
           {{"name", fmt::format("stream {} {}", stream,
                                 is_compute ? "compute" : "collectives")}});
    }
  }

  void Annotate(const std::string& name, const PhaseRecord& phase) {
    AddSlice("user_annotation", name, {phase.begin_ns, phase.end_ns},
             MainProcess(), kMainThread, {{"trainsys step", phase.step}});
  }

  // The kernel, its launch (which takes until `launch_end_ns`) and the arrow.
  void Add(const TraceKernel& kernel, int64_t launch_end_ns) {
    const int64_t id = ++correlation_;
    const TraceSpan launch{kernel.launched_ns, launch_end_ns};
    if (!kernel.posted.is_null()) {
      AddSlice("cpu_op", "record_param_comms", launch, MainProcess(),
               kMainThread, kernel.posted);
      AddFlight(kernel, id);
    }
    AddSlice("cuda_runtime", "cudaLaunchKernel", launch, MainProcess(),
             kMainThread, {{"correlation", id}});
    json args = kernel.args;
    args.update({{"stream", kernel.stream},
                 {"correlation", id},
                 {"device", rank_},
                 {"context", 1}});
    AddSlice("kernel", kernel.name, kernel.span, Streams(), kernel.stream,
             std::move(args));
    AddArrow("s", id, launch.begin_ns, MainProcess(), kMainThread);
    AddArrow("f", id, kernel.span.begin_ns, Streams(), kernel.stream);
  }

  // In the order of time; what encloses others first.
  std::string Text() && {
    std::stable_sort(events_.begin(), events_.end(),
                     [](const Event& a, const Event& b) {
                       return std::pair(a.span.begin_ns, -a.span.end_ns) <
                              std::pair(b.span.begin_ns, -b.span.end_ns);
                     });
    std::string text;
    for (const Event& event : events_) {
      if (!text.empty()) text += ",\n";
      // A label need not be UTF-8.
      text += event.json.dump(-1, ' ', false, json::error_handler_t::replace);
    }
    return text;
  }

 private:
  struct Event {
    TraceSpan span;
    nlohmann::json json;
  };

  int MainProcess() const { return 1 + 2 * rank_; }
  int Streams() const { return 2 + 2 * rank_; }

  json At(const char* kind, const std::string& name, int64_t at_ns, int pid,
          int tid) const {
    return {{"ph", kind},
            {"name", name},
            {"pid", pid},
            {"tid", tid},
            {"ts", Microseconds(at_ns - base_ns_)}};
  }
  void Meta(const char* what, int pid, int tid, json args) {
    json event = At("M", what, base_ns_, pid, tid);
    event["args"] = std::move(args);
    events_.push_back({{base_ns_ - 1, base_ns_}, std::move(event)});
  }
  void AddSlice(const char* category, const std::string& name,
                const TraceSpan& span, int pid, int tid, json args) {
    json event = At("X", name, span.begin_ns, pid, tid);
    event["cat"] = category;
    event["dur"] = Microseconds(span.end_ns - span.begin_ns);
    event["args"] = std::move(args);
    events_.push_back({span, std::move(event)});
  }
  void AddPoint(json event, const char* category, int64_t id, int64_t at_ns) {
    event["cat"] = category;
    event["id"] = id;
    events_.push_back({{at_ns, at_ns}, std::move(event)});
  }
  void AddArrow(const char* end, int64_t id, int64_t at_ns, int pid, int tid) {
    json event = At(end, "ac2g", at_ns, pid, tid);
    if (*end == 'f') event["bp"] = "e";
    AddPoint(std::move(event), "ac2g", id, at_ns);
  }
  void AddFlight(const TraceKernel& kernel, int64_t id) {
    const std::string label = kernel.args.at("trainsys label");
    const TraceSpan flight{kernel.launched_ns, kernel.span.end_ns};
    AddPoint(At("b", label, flight.begin_ns, MainProcess(), kMainThread),
             "in flight", id, flight.begin_ns);
    AddPoint(At("e", label, flight.end_ns, MainProcess(), kMainThread),
             "in flight", id, flight.end_ns);
  }

  const int rank_;
  const int64_t base_ns_;
  int64_t correlation_ = 0;
  std::vector<Event> events_;
};

// Where slices on the main thread begin and end, in order.
std::vector<int64_t> Edges(const TraceSteps& steps,
                           const std::vector<PhaseRecord>& phases,
                           const std::vector<TraceKernel>& kernels) {
  std::vector<int64_t> edges;
  for (const auto& [number, step] : steps) {
    edges.insert(edges.end(), {step.begin_ns, step.end_ns});
  }
  for (const PhaseRecord& phase : phases) {
    edges.insert(edges.end(), {phase.begin_ns, phase.end_ns});
  }
  for (const TraceKernel& kernel : kernels) edges.push_back(kernel.launched_ns);
  std::sort(edges.begin(), edges.end());
  return edges;
}

// A launch takes as long as nothing else begins or ends: slices must nest.
int64_t LaunchEndNs(int64_t begin_ns, const std::vector<int64_t>& edges) {
  const auto next = std::upper_bound(edges.begin(), edges.end(), begin_ns);
  const int64_t end_ns = begin_ns + kLaunchNs;
  return next == edges.end() ? end_ns : std::min(end_ns, *next);
}

std::vector<int> StreamsOf(const std::vector<TraceKernel>& kernels) {
  std::vector<int> streams;
  for (const TraceKernel& kernel : kernels) streams.push_back(kernel.stream);
  std::sort(streams.begin(), streams.end());
  streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
  return streams;
}

std::string EventsOf(const Recorder& recorder, const TraceSteps& steps,
                     size_t ranks, int64_t base_ns,
                     const std::string& backend) {
  const std::vector<PhaseRecord> phases = PhasesOf(recorder, steps);
  const std::vector<TraceKernel> kernels =
      KernelsOf(recorder, steps, phases, ranks, backend);
  Events events(recorder.rank(), base_ns);
  events.Name(StreamsOf(kernels));
  for (const auto& [number, step] : steps) {
    events.Annotate(fmt::format("ProfilerStep#{}", number), step);
  }
  for (const PhaseRecord& phase : phases) events.Annotate(phase.name, phase);
  const std::vector<int64_t> edges = Edges(steps, phases, kernels);
  for (const TraceKernel& kernel : kernels) {
    events.Add(kernel, LaunchEndNs(kernel.launched_ns, edges));
  }
  return std::move(events).Text();
}

// Indented: readers find the rank by its text, and want a space before it.
std::string Head(int rank, size_t ranks, const std::string& backend) {
  std::vector<size_t> all(ranks);
  for (size_t r = 0; r < ranks; ++r) all[r] = r;
  const json group{{"pg_name", "0"},
                   {"pg_desc", "default_pg"},
                   {"backend_config", "cpu:" + backend},
                   {"pg_size", ranks},
                   {"ranks", std::move(all)}};
  const json head{{"schemaVersion", 1},
                  {"deviceProperties", json::array()},
                  {"displayTimeUnit", "ms"},
                  {"traceName", TraceFileName(rank)},
                  {"distributedInfo",
                   {{"backend", backend},
                    {"rank", rank},
                    {"world_size", ranks},
                    {"pg_count", 1},
                    {"pg_config", {group}}}}};
  std::string text = head.dump(1, ' ', false, json::error_handler_t::replace);
  text.resize(text.rfind('\n'));  // without the last brace
  return text;
}

}  // namespace

std::vector<std::string> RankTraces(std::span<const Recorder> recorders,
                                    const std::string& backend,
                                    size_t most_steps) {
  const std::vector<TraceSteps> steps = StepsOnAllRanks(recorders, most_steps);
  const int64_t base_ns = FirstBeginNs(steps);
  std::vector<std::string> traces;
  for (size_t r = 0; r < recorders.size(); ++r) {
    traces.push_back(
        Head(static_cast<int>(r), recorders.size(), backend) +
        ",\n \"traceEvents\": [\n" +
        EventsOf(recorders[r], steps[r], recorders.size(), base_ns, backend) +
        "\n]}\n");
  }
  return traces;
}

std::string TraceFileName(int rank) {
  return fmt::format("rank{}.pt.trace.json", rank);
}

}  // namespace trainsys
