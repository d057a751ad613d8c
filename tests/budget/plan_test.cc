#include "trainsys/budget/plan.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "collectives/errors.h"
#include "trainsys/budget/plan_report.h"

namespace trainsys {
namespace {

constexpr int64_t kGb = 1'000'000'000;

PlanRequest Llama8b() {
  PlanRequest request;
  request.shape = PresetShape("llama3-8b");
  request.states.zero_stage = 1;
  request.states.ranks = 64;
  request.recompute = "full";
  request.device_bytes = 80 * kGb;
  return request;
}

PlanRequest Crowded() {
  PlanRequest request = Llama8b();
  request.states.zero_stage = 0;
  request.recompute = "none";
  request.rows = 4;
  return request;
}

TEST(PlanTest, TheLinesAddUpToTheTotal) {
  for (const PlanRequest& request : {Llama8b(), Crowded()}) {
    const MemoryPlan plan = PlanMemory(request);
    int64_t sum = 0;
    for (const PlanLine& line : PlanLines(plan)) sum += line.bytes;
    EXPECT_EQ(sum, plan.Total());
  }
}

TEST(PlanTest, TheZeroPapersExampleTakesItsPublishedMemory) {
  PlanRequest request = Llama8b();
  request.shape = PresetShape("zero-7.5b");
  const auto states_gb = [&request](int stage) {
    request.states.zero_stage = stage;
    const ModelStates s = PlanMemory(request).states;
    return static_cast<double>(s.Total() - s.communication) / 1e9;
  };
  EXPECT_NEAR(states_gb(0), 120, 0.1);
  EXPECT_NEAR(states_gb(1), 31.4, 0.1);
  EXPECT_NEAR(states_gb(2), 16.6, 0.1);
  EXPECT_NEAR(states_gb(3), 1.9, 0.1);
}

TEST(PlanTest, TheLargestBatchFitsAndOneMoreDoesNot) {
  PlanRequest request = Llama8b();
  const int64_t rows = LargestBatch(PlanMemory(request));
  ASSERT_GT(rows, 0);
  request.rows = rows;
  EXPECT_TRUE(PlanMemory(request).Fits());
  request.rows = rows + 1;
  EXPECT_FALSE(PlanMemory(request).Fits());
  request.device_bytes = kGb;
  EXPECT_EQ(LargestBatch(PlanMemory(request)), 0);
}

TEST(PlanTest, EachRemedyIsWhatItsPlanComesTo) {
  const MemoryPlan plan = PlanMemory(Crowded());
  ASSERT_FALSE(plan.Fits());
  const auto remedies = Remedies(plan);
  ASSERT_FALSE(remedies.empty());
  PlanRequest changed = Crowded();
  changed.states.zero_stage = 2;
  const int64_t expected = PlanMemory(changed).Total();
  const auto found =
      std::find_if(remedies.begin(), remedies.end(),
                   [](const Remedy& r) { return r.change == "--zero 2"; });
  ASSERT_NE(found, remedies.end());
  EXPECT_EQ(found->total_bytes, expected);
  for (const Remedy& remedy : remedies) {
    EXPECT_LT(remedy.total_bytes, plan.Total()) << remedy.change;
    EXPECT_EQ(remedy.fits, remedy.total_bytes <= 80 * kGb) << remedy.change;
  }
}

TEST(PlanTest, SeveralChangesAreTriedWhereNoneHelpsAlone) {
  const auto remedies = Remedies(PlanMemory(Crowded()));
  for (size_t i = 0; i + 1 < remedies.size(); ++i) {
    EXPECT_FALSE(remedies[i].fits) << remedies[i].change;
  }
  EXPECT_EQ(remedies.back().change, "--zero 1 --recompute full");
  EXPECT_TRUE(remedies.back().fits);
}

TEST(PlanTest, ByParameterThePlanIsOfTheLargestRank) {
  PlanRequest request = Llama8b();
  request.states.partition = Partition::kByTensor;
  request.states.ranks = 4;
  const MemoryPlan plan = PlanMemory(request);
  const auto tensors = ElemsOf(ParameterTensors(request.shape));
  for (int rank = 0; rank < 4; ++rank) {
    request.states.rank = rank;
    EXPECT_LE(ModelStatesOf(tensors, request.states).Total(),
              plan.states.Total());
  }
}

TEST(PlanTest, TheTextAnswersInItsFirstLineWithin80Columns) {
  PlanRequest long_name = Crowded();
  long_name.shape.name = std::string(200, 'x') + "/config.json";
  PlanRequest huge = Crowded();
  huge.shape = PresetShape("llama3-70b");
  huge.rows = 1'000;
  for (const PlanRequest& request : {Llama8b(), Crowded(), long_name, huge}) {
    const MemoryPlan plan = PlanMemory(request);
    const std::string text = AsText(plan);
    EXPECT_EQ(text.find(plan.Fits() ? "fits: " : "does not fit: "), 0u);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

TEST(PlanTest, TheJsonHasThePlansBytes) {
  const MemoryPlan plan = PlanMemory(Crowded());
  const auto json = nlohmann::json::parse(AsJson(plan));
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["memory_bytes_per_rank"]["total"], plan.Total());
  EXPECT_EQ(json["options"]["precision"], "bf16");
  EXPECT_EQ(json["remedies"].size(), Remedies(plan).size());
}

int64_t PeakKib() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_maxrss;
}

TEST(PlanTest, PlanningAnEightBillionModelTakesUnderTenMib) {
  const int64_t before = PeakKib();
  AsJson(PlanMemory(Crowded()));
  EXPECT_LT(PeakKib() - before, 10 * 1024);
}

TEST(PlanTest, WrongRequestsAreRefused) {
  const auto refuses = [](auto change) {
    PlanRequest request = Llama8b();
    change(request);
    EXPECT_THROW(PlanMemory(request), collectives::InvalidArgument);
  };
  refuses([](PlanRequest& r) { r.device_bytes = 0; });
  refuses([](PlanRequest& r) { r.recompute = "some"; });
  refuses([](PlanRequest& r) { r.states.zero_stage = 9; });
  refuses([](PlanRequest& r) { r.rows = -1; });
}

}  // namespace
}  // namespace trainsys
