#include "trainsys/timeline/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/errors.h"
#include "tests/timeline/made_recorder.h"

namespace trainsys {
namespace {

using collectives::DType;
using collectives::InvalidArgument;
using collectives::Operation;
using collectives::Record;
using collectives::Recorder;
using collectives::RecordState;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kUs = 1000;
constexpr int64_t kStepUs = 1000;

// What a step of MadeRecorder does, in us from its begin:
//   forward 50-300, backward 300-700, gradient sync 700-800, optimizer 800-900
//   bucket 0: posted 400, matched 450, done 650, waited for 700-710
//   bucket 1: posted 690, matched 700, done 790, waited for 710-790
//   loss    : posted 910, matched 920, done 921, waited for 910-921
Record Collective(const std::string& label, int64_t posted_us,
                  int64_t matched_us, int64_t done_us, int64_t waited_us) {
  Record record = BucketRecord(0, posted_us * kUs);
  record.label = label;
  record.dtype = DType::kF32;
  record.elems = 1024;
  record.bytes = 4096;
  record.matched_ns = matched_us * kUs;
  record.done_ns = done_us * kUs;
  record.wait_began_ns = waited_us * kUs;
  record.wait_ended_ns = std::max(done_us, waited_us + 10) * kUs;
  return record;
}

void AddStep(Recorder& recorder, int64_t step, int64_t begin_us) {
  const auto add = [&](const char* name, int64_t from_us, int64_t to_us) {
    recorder.AddPhase(
        {name, step, (begin_us + from_us) * kUs, (begin_us + to_us) * kUs});
  };
  add("step", 0, 950);
  add("forward", 50, 300);
  add("backward", 300, 700);
  add("gradient sync", 700, 800);
  add("optimizer", 800, 900);
  const int64_t b = begin_us;
  recorder.Add(Collective("bucket 0", b + 400, b + 450, b + 650, b + 700));
  recorder.Add(Collective("bucket 1", b + 690, b + 700, b + 790, b + 710));
  Record loss = Collective("loss", b + 910, b + 920, b + 921, b + 910);
  loss.channel = "main";
  loss.is_async = false;
  loss.wait_ended_ns = loss.done_ns;
  recorder.Add(loss);
}

// Steps begin at 5000 us of the clock, a little later on later ranks.
Recorder MadeRecorder(int rank, int64_t steps = 3) {
  Recorder recorder(rank);
  for (int64_t step = 0; step < steps; ++step) {
    AddStep(recorder, step, 5000 + 20 * rank + step * kStepUs);
  }
  return recorder;
}

std::vector<std::string> MadeTraces(int ranks = 2) {
  std::vector<Recorder> recorders;
  for (int r = 0; r < ranks; ++r) recorders.push_back(MadeRecorder(r));
  return RankTraces(recorders, "threads");
}

std::vector<json> AllEvents(const std::string& trace) {
  return json::parse(trace).at("traceEvents").get<std::vector<json>>();
}

std::vector<json> EventsOf(const std::string& trace,
                           const std::string& category) {
  std::vector<json> events;
  for (const json& event : AllEvents(trace)) {
    if (event.value("cat", "") == category) events.push_back(event);
  }
  return events;
}

std::vector<json> KernelsOn(const std::string& trace, int stream) {
  std::vector<json> kernels = EventsOf(trace, "kernel");
  std::erase_if(kernels, [&](const json& kernel) {
    return kernel["args"]["stream"] != stream;
  });
  return kernels;
}

double End(const json& event) {
  return event["ts"].get<double>() + event["dur"].get<double>();
}

// Slices of one thread that overlap without one being within the other.
int NumTorn(std::vector<json> slices) {
  std::erase_if(slices, [](const json& event) { return event["ph"] != "X"; });
  int num_torn = 0;
  for (const json& a : slices) {
    for (const json& b : slices) {
      const bool is_torn = a["pid"] == b["pid"] && a["tid"] == b["tid"] &&
                           a["ts"] < b["ts"] && b["ts"] < End(a) - 1e-6 &&
                           End(b) > End(a) + 1e-6;
      num_torn += is_torn;
    }
  }
  return num_torn;
}

TEST(TraceTest, TheRankIsFoundByItsText) {
  const auto traces = MadeTraces(3);
  const std::regex rank(R"re("rank":\s+(\d+))re");
  for (size_t r = 0; r < traces.size(); ++r) {
    std::smatch found;
    ASSERT_TRUE(std::regex_search(traces[r], found, rank));
    EXPECT_EQ(found[1], std::to_string(r));
    const json parsed = json::parse(traces[r]);
    EXPECT_EQ(parsed["distributedInfo"]["rank"], r);
    EXPECT_EQ(parsed["distributedInfo"]["world_size"], 3);
    EXPECT_EQ(parsed["distributedInfo"]["pg_config"][0]["ranks"],
              json({0, 1, 2}));
  }
  EXPECT_EQ(TraceFileName(3), "rank3.pt.trace.json");
}

TEST(TraceTest, NumbersAreNumbersAndEverySliceHasItsFields) {
  for (const std::string& trace : MadeTraces()) {
    for (const json& event : AllEvents(trace)) {
      EXPECT_TRUE(event.at("ts").is_number()) << event;
      EXPECT_TRUE(event.at("pid").is_number_integer()) << event;
      EXPECT_TRUE(event.at("tid").is_number_integer()) << event;
      if (event["ph"] != "X") continue;
      EXPECT_GE(event.at("ts"), 0) << event;
      EXPECT_GE(event.at("dur"), 0) << event;
      EXPECT_FALSE(event.at("cat").get<std::string>().empty());
      EXPECT_EQ(event["args"].contains("stream"), event["cat"] == "kernel")
          << "what has a stream is taken for a kernel: " << event;
    }
  }
}

TEST(TraceTest, EachKernelHasOneLaunchBeforeItAndTheirNumberIsUnique) {
  for (const std::string& trace : MadeTraces()) {
    std::map<int64_t, json> launches;
    for (const json& launch : EventsOf(trace, "cuda_runtime")) {
      EXPECT_EQ(launch["name"], "cudaLaunchKernel");
      const json& number = launch["args"].at("correlation");
      ASSERT_TRUE(number.is_number_integer());
      EXPECT_TRUE(launches.emplace(number, launch).second);
    }
    std::set<int64_t> seen;
    for (const json& kernel : EventsOf(trace, "kernel")) {
      const int64_t number = kernel["args"].at("correlation");
      EXPECT_TRUE(seen.insert(number).second);
      ASSERT_TRUE(launches.contains(number));
      EXPECT_LE(launches[number]["ts"].get<double>() + 1, kernel["ts"]);
      EXPECT_LE(End(launches[number]), kernel["ts"]);
    }
    EXPECT_EQ(seen.size(), launches.size());
  }
}

TEST(TraceTest, SlicesOfAThreadNestAndKernelsOfAStreamFollowOneAnother) {
  for (const std::string& trace : MadeTraces()) {
    EXPECT_EQ(NumTorn(AllEvents(trace)), 0);
    for (const int stream : {7, 20, 21}) {
      double until = 0;
      for (const json& kernel : KernelsOn(trace, stream)) {
        EXPECT_GE(kernel["ts"], until - 1e-6);
        until = End(kernel);
      }
    }
  }
}

TEST(TraceTest, ALaunchEndsWhereTheNextBeginsOrThePhaseEnds) {
  std::vector<Recorder> recorders{MadeRecorder(0)};
  for (const int64_t posted_ns : {5'500'000, 5'500'300, 5'699'600}) {
    Record record = Collective("x", 5500, 5800, 5810, 5900);
    record.posted_ns = posted_ns;
    recorders[0].Add(record);
  }
  const std::string trace = RankTraces(recorders, "threads")[0];
  EXPECT_EQ(NumTorn(AllEvents(trace)), 0);
  std::map<double, double> launches;
  for (const json& launch : EventsOf(trace, "cuda_runtime")) {
    launches[launch["ts"]] = launch["dur"];
  }
  EXPECT_EQ(launches[500], 0.3);
  EXPECT_EQ(launches[500.3], 1);
  EXPECT_EQ(launches[699.6], 0.4);
}

TEST(TraceTest, ComputingIsThePhasesWithoutWaits) {
  const std::string trace = MadeTraces()[0];
  std::vector<std::string> computing;
  for (const json& kernel : KernelsOn(trace, 7)) {
    if (kernel["args"]["trainsys step"] != 0) continue;
    computing.push_back(kernel["name"].get<std::string>() + " " +
                        kernel["ts"].dump() + " " + kernel["dur"].dump());
  }
  EXPECT_THAT(computing, ElementsAre("compute forward 51.0 249.0",
                                     "compute backward 301.0 399.0",
                                     "compute gradient sync 791.0 9.0",
                                     "compute optimizer 801.0 99.0"));
}

TEST(TraceTest, ACollectiveLastsFromTheMatchToTheData) {
  const std::vector<json> kernels = KernelsOn(MadeTraces()[1], 20);
  ASSERT_THAT(kernels, SizeIs(9));
  const json& bucket = kernels[3];  // of step 1
  EXPECT_EQ(bucket["name"],
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)");
  EXPECT_EQ(bucket["ts"], 20 + 1000 + 450);
  EXPECT_EQ(bucket["dur"], 200);
  const json& args = bucket["args"];
  EXPECT_EQ(args["trainsys label"], "bucket 0");
  EXPECT_EQ(args["trainsys us from post to match"], 50);
  EXPECT_EQ(args["trainsys us waited for peers"], 0);
  EXPECT_EQ(args["trainsys us waited for data"], 10);
  EXPECT_EQ(args["Collective name"], "allreduce");
  EXPECT_EQ(args["In msg nelems"], 1024);
  EXPECT_EQ(args["Group size"], 2);
  EXPECT_EQ(args["dtype"], "Float");
  EXPECT_EQ(args["In split size"], "[]");
  EXPECT_EQ(args["Process Group Ranks"], "[0, 1]");
  EXPECT_EQ(kernels[5]["args"]["trainsys us waited for peers"], 10) << "loss";
}

TEST(TraceTest, TheCallSaysWhetherItWasAsynchronous) {
  const auto calls = EventsOf(MadeTraces()[0], "cpu_op");
  ASSERT_THAT(calls, SizeIs(9));
  EXPECT_EQ(calls[0]["name"], "record_param_comms");
  EXPECT_EQ(calls[0]["ts"], 400);
  EXPECT_EQ(calls[0]["args"]["Is asynchronized op"], true);
  EXPECT_EQ(calls[2]["args"]["Is asynchronized op"], false);
}

TEST(TraceTest, EveryOperationHasTheNameThatToolsTakeForCommunication) {
  std::vector<Recorder> recorders{MadeRecorder(0)};
  const std::regex communication("^nccl.*Kernel");
  for (int o = 0; o < 4; ++o) {
    Record record = Collective("x", 5010 + 20 * o, 5011, 5015, 5016);
    record.operation = static_cast<Operation>(o);
    recorders[0].Add(record);
  }
  std::vector<std::string> names;
  for (const json& kernel :
       EventsOf(RankTraces(recorders, "gloo")[0], "kernel")) {
    const std::string name = kernel["name"];
    const bool is_compute = kernel["args"]["stream"] == 7;
    EXPECT_EQ(std::regex_search(name, communication), !is_compute) << name;
    if (kernel["args"].value("trainsys label", "") == "x") {
      names.push_back(name);
    }
  }
  EXPECT_THAT(names,
              ElementsAre("ncclDevKernel_AllReduce_Sum_f32_RING_LL("
                          "ncclDevComm*)",
                          "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL("
                          "ncclDevComm*)",
                          "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)",
                          "ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)"));
}

TEST(TraceTest, NoPhaseIsTakenForACopyOrASynchronization) {
  std::vector<Recorder> recorders{MadeRecorder(0)};
  for (const char* name : {"Memcpy", "dma", "ncclKernel", "Stream Sync"}) {
    recorders[0].AddPhase({name, 0, 5000 * kUs, 5010 * kUs});
    const std::string computing =
        KernelsOn(RankTraces(recorders, "threads")[0], 7)[0]["name"];
    EXPECT_FALSE(std::regex_search(
        computing, std::regex("^dma|Memcpy|Memset|Sync|nccl.*Kernel")))
        << computing;
    recorders[0] = MadeRecorder(0);
  }
}

TEST(TraceTest, CollectivesThatOverlapRunOnStreamsOfTheirOwn) {
  std::vector<Recorder> recorders{MadeRecorder(0)};
  recorders[0].Add(Collective("a", 5410, 5460, 5500, 5501));
  recorders[0].Add(Collective("b", 5420, 5470, 5480, 5481));
  recorders[0].Add(Collective("c", 5430, 5490, 5510, 5511));
  const std::string trace = RankTraces(recorders, "threads")[0];
  std::map<std::string, int> streams;
  for (const json& kernel : EventsOf(trace, "kernel")) {
    if (kernel["ts"] < 600 && kernel["args"]["stream"] >= 20) {
      streams[kernel["args"]["trainsys label"]] = kernel["args"]["stream"];
    }
  }
  EXPECT_EQ(streams, (std::map<std::string, int>{
                         {"bucket 0", 20}, {"a", 21}, {"b", 22}, {"c", 22}}));
}

TEST(TraceTest, AllRanksHaveOneTimeBase) {
  std::vector<double> first;
  for (const std::string& trace : MadeTraces(3)) {
    first.push_back(EventsOf(trace, "user_annotation")[0]["ts"]);
  }
  EXPECT_THAT(first, ElementsAre(0, 20, 40));
}

TEST(TraceTest, NanosecondsAreKept) {
  std::vector<Recorder> recorders{MadeRecorder(0)};
  Record record = Collective("x", 5010, 0, 0, 0);
  record.done_ns = 5'015'456;
  record.posted_ns = 5'010'123;
  record.matched_ns = 5'011'789;
  recorders[0].Add(record);
  const std::string trace = RankTraces(recorders, "threads")[0];
  const json kernel = KernelsOn(trace, 20)[0];
  EXPECT_EQ(kernel["ts"].dump(), "11.789");
  EXPECT_EQ(kernel["dur"].dump(), "3.667");
  EXPECT_THAT(trace, HasSubstr("\"ts\":10.123"));
}

TEST(TraceTest, ShortKernelsLastAMicrosecondOrAreLeftOut) {
  std::vector<Recorder> recorders{MadeRecorder(0)};
  recorders[0].Add(Collective("x", 5010, 5010, 5010, 5011));
  recorders[0].AddPhase({"short", 0, 5020 * kUs, 5020 * kUs + 1999});
  const std::string trace = RankTraces(recorders, "threads")[0];
  EXPECT_EQ(KernelsOn(trace, 20)[0]["ts"], 11);
  EXPECT_EQ(KernelsOn(trace, 20)[0]["dur"], 1);
  EXPECT_EQ(KernelsOn(trace, 7)[0]["name"], "compute forward");
}

TEST(TraceTest, WhatMovesNoDataFailedOrIsOfNoStepIsLeftOut) {
  std::vector<Recorder> recorders{MadeRecorder(0)};
  Record barrier = Collective("barrier", 5010, 5011, 5015, 5016);
  barrier.operation = Operation::kBarrier;
  Record empty = Collective("empty", 5010, 5011, 5015, 5016);
  empty.bytes = 0;
  Record failed = Collective("failed", 5010, 5011, 5015, 5016);
  failed.state = RecordState::kFailed;
  for (const Record& record :
       {barrier, empty, failed, Collective("early", 4999, 5011, 5015, 5016),
        Collective("late", 7950, 7951, 7955, 7956)}) {
    recorders[0].Add(record);
  }
  EXPECT_THAT(EventsOf(RankTraces(recorders, "threads")[0], "cpu_op"),
              SizeIs(9));
}

TEST(TraceTest, APhaseWithinAnotherIsPartOfIt) {
  std::vector<Recorder> recorders{MadeRecorder(0)};
  recorders[0].AddPhase({"inner", 0, 5100 * kUs, 5200 * kUs});
  recorders[0].AddPhase({"torn", 0, 5250 * kUs, 5350 * kUs});
  for (const json& kernel : KernelsOn(RankTraces(recorders, "threads")[0], 7)) {
    EXPECT_NE(kernel["name"], "compute inner");
    EXPECT_NE(kernel["name"], "compute torn");
  }
}

// Its arrow starts inside an open slice and ends at the kernel.
TEST(TraceTest, EveryKernelHasAnArrow) {
  const std::string trace = MadeTraces()[0];
  const auto arrows = EventsOf(trace, "ac2g");
  const auto kernels = EventsOf(trace, "kernel");
  EXPECT_EQ(arrows.size(), 2 * kernels.size());
  for (const json& arrow : arrows) {
    const bool is_end = arrow["ph"] == "f";
    EXPECT_EQ(arrow.value("bp", ""), is_end ? "e" : "");
    const auto events = is_end ? kernels : EventsOf(trace, "cuda_runtime");
    const auto slice =
        std::find_if(events.begin(), events.end(), [&](const json& event) {
          return event["args"]["correlation"] == arrow["id"];
        });
    ASSERT_NE(slice, events.end());
    EXPECT_EQ((*slice)["ts"], arrow["ts"]);
    EXPECT_LT(arrow["ts"], End(*slice));
    EXPECT_EQ((*slice)["tid"], arrow["tid"]);
  }
}

std::vector<std::string> StepsIn(const std::string& trace) {
  std::vector<std::string> names;
  for (const json& event : EventsOf(trace, "user_annotation")) {
    const std::string name = event["name"];
    if (name.starts_with("ProfilerStep#")) names.push_back(name);
  }
  return names;
}

TEST(TraceTest, TheNewestStepsThatAllRanksHaveAreShown) {
  const std::vector<Recorder> recorders{MadeRecorder(0, 6), MadeRecorder(1, 5)};
  EXPECT_THAT(RankTraces(recorders, "threads", 3),
              Each(testing::ResultOf(
                  StepsIn, ElementsAre("ProfilerStep#2", "ProfilerStep#3",
                                       "ProfilerStep#4"))));
}

TEST(TraceTest, AStepThatTheRingHasLostPartOfIsNone) {
  Recorder recorder(0, 13);  // of 15 records: not the first two
  for (int64_t step = 0; step < 5; ++step) {
    AddStep(recorder, step, 5000 + step * kStepUs);
  }
  EXPECT_THAT(StepsIn(RankTraces(std::vector{recorder}, "threads")[0]),
              ElementsAre("ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3",
                          "ProfilerStep#4"));
}

TEST(TraceTest, FewerThanThreeStepsAreRefused) {
  for (const auto& recorders :
       {std::vector{MadeRecorder(0, 2)},
        std::vector{MadeRecorder(0, 3), MadeRecorder(1, 2)},
        std::vector<Recorder>{}}) {
    try {
      RankTraces(recorders, "threads");
      ADD_FAILURE() << "not refused";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("at least 3 steps"));
    }
  }
}

TEST(TraceTest, LabelsMayHoldAnything) {
  std::vector<Recorder> recorders{MadeRecorder(0)};
  recorders[0].Add(Collective("\"\\\n\x01\xff", 5010, 5011, 5015, 5016));
  const auto calls = KernelsOn(RankTraces(recorders, "threads")[0], 20);
  EXPECT_EQ(calls[0]["args"]["trainsys label"], "\"\\\n\x01\xef\xbf\xbd");
}

TEST(TraceTest, ManyRanksAreCutShort) {
  std::vector<Recorder> recorders;
  for (int r = 0; r < 40; ++r) recorders.push_back(MadeRecorder(r));
  const std::string ranks = KernelsOn(RankTraces(recorders, "threads")[39],
                                      20)[0]["args"]["Process Group Ranks"];
  EXPECT_THAT(ranks, AllOf(HasSubstr("[0, 1, 2"), HasSubstr(", 28, ..., 39]")));
}

}  // namespace
}  // namespace trainsys
