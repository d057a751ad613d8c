#include "tools/json_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/parse.h"

namespace trainsys {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Words = std::vector<std::string>;

// What a command line comes to.
struct Outcome {
  std::optional<int> code;
  std::string out, err;
};

// Flags of each kind.
struct Tool {
  int ranks = 4;
  std::optional<double> budget_mb;
  std::string recompute = "full";
  double lr = 3e-3;
  uint64_t seed = 1;
  std::vector<int> sizes{2, 4};
  Words bytes;
  bool is_quick = false;
  std::string json;
  CLI::App app{"Tries.", "tool"};

  Tool() {
    app.add_option("--ranks,--nproc-per-node", ranks, "how many")
        ->capture_default_str();
    auto* const policy = app.add_option("--recompute", recompute, "policy")
                             ->capture_default_str();
    app.add_option("--budget-mb", budget_mb, "instead")->excludes(policy);
    app.add_option("--lr", lr, "rate")->capture_default_str();
    app.add_option("--seed", seed, "of all")->capture_default_str();
    app.add_option("--sizes", sizes, "of each")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    app.add_option("--bytes", bytes, "as 4 or 16Ki")->delimiter(',');
    app.add_flag("--quick", is_quick, "less");
    app.add_option("--json", json, "a file");
  }
};

// Two commands, as plan has them.
struct Planner {
  std::string memory_model, shards_model;
  int ranks = 1;
  CLI::App app{"Plans.", "planner"};
  CLI::App* memory = nullptr;
  CLI::App* shards = nullptr;

  Planner() {
    app.require_subcommand(1);
    memory = app.add_subcommand("memory", "of a rank");
    shards = app.add_subcommand("shards", "of all");
    memory->add_option("--model", memory_model, "which")->required();
    memory->add_option("--ranks", ranks, "how many")->capture_default_str();
    shards->add_option("--model", shards_model, "which")->required();
  }
};

template <typename AnyTool>
Outcome Parsed(AnyTool& tool, Words words) {
  words.insert(words.begin(), "tool");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.code = Parse(tool.app, static_cast<int>(argv.size()), argv.data());
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

// Result: its path.
std::string FileWith(const std::string& text) {
  const std::string path = testing::TempDir() + "/flags.json";
  std::ofstream(path) << text;
  return path;
}

std::string ErrorFor(const std::string& text, Words more = {}) {
  Tool tool;
  Words words{"--config", FileWith(text)};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = Parsed(tool, words);
  EXPECT_EQ(outcome.code, kExitUsage) << text;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.find('\n') + 1, outcome.err.size()) << outcome.err;
  return outcome.err;
}

TEST(JsonConfigTest, AFileSetsFlagsOfEveryKind) {
  Tool tool;
  const Outcome outcome = Parsed(
      tool,
      {"--config", FileWith(R"({"ranks": 5, "lr": 1e-5, "recompute": "none",
                          "seed": 18446744073709551615, "sizes": [1, 2, 3],
                          "bytes": ["4", 16], "quick": true})")});
  EXPECT_EQ(outcome.code, std::nullopt) << outcome.err;
  EXPECT_EQ(tool.ranks, 5);
  EXPECT_EQ(tool.lr, 1e-5);
  EXPECT_EQ(tool.recompute, "none");
  EXPECT_EQ(tool.seed, UINT64_MAX);
  EXPECT_THAT(tool.sizes, ElementsAre(1, 2, 3));
  EXPECT_THAT(tool.bytes, ElementsAre("4", "16"));
  EXPECT_TRUE(tool.is_quick);
}

TEST(JsonConfigTest, AnyNameOfAFlagAndOneValueForAListAreTaken) {
  Tool tool;
  Parsed(tool, {"--config", FileWith(R"({"nproc-per-node": 7, "sizes": 8})")});
  EXPECT_EQ(tool.ranks, 7);
  EXPECT_THAT(tool.sizes, ElementsAre(8));
}

TEST(JsonConfigTest, FalseIsNotGiven) {
  Tool tool;
  Parsed(tool, {"--config", FileWith(R"({"quick": false})")});
  EXPECT_FALSE(tool.is_quick);
}

TEST(JsonConfigTest, TheCommandLineWins) {
  Tool tool;
  Parsed(tool, {"--ranks", "6", "--sizes", "9", "--config",
                FileWith(R"({"ranks": 5, "sizes": [1, 2], "lr": 1})")});
  EXPECT_EQ(tool.ranks, 6);
  EXPECT_THAT(tool.sizes, ElementsAre(9));
  EXPECT_EQ(tool.lr, 1);
}

TEST(JsonConfigTest, AFlagOfTheCommandLineWinsOverOneThatItExcludes) {
  Tool tool;
  const Outcome outcome = Parsed(tool, {"--budget-mb", "20", "--config",
                                        FileWith(R"({"recompute": "none"})")});
  EXPECT_EQ(outcome.code, std::nullopt) << outcome.err;
  EXPECT_EQ(tool.budget_mb, 20);
  EXPECT_EQ(tool.recompute, "full");
  EXPECT_THAT(ErrorFor(R"({"recompute": "none", "budget-mb": 20})"),
              HasSubstr("excludes"));
}

TEST(JsonConfigTest, EveryMistakeIsOneLineThatNamesItAndWhatWasExpected) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"rank": 4})", "unknown key 'rank', expected a flag"},
      {R"({"ranks": 4, "ranks": 2})", "'ranks' is there twice, expected one"},
      {R"({"ranks": 4, "nproc-per-node": 2})", "under two of its names"},
      {R"({"lr": 1e400})", "a number that is out of range"},
      {R"({"ranks": )" + std::string(100'000, '['), "nests deeper than flags"},
      {R"({"": 4})", "unknown key '', expected a flag"},
      {R"({"--ranks": 4})", "unknown key '--ranks', expected a flag"},
      {R"({"config": "x"})", "unknown key 'config'"},
      {R"({"print-config": true})", "unknown key 'print-config'"},
      {R"({"help": true})", "unknown key 'help'"},
      {R"({"ranks": true})", "'ranks' is true, expected a number"},
      {R"({"ranks": [4]})", "'ranks' is [4], expected a number"},
      {R"({"ranks": {}})", "'ranks' is {}, expected a number"},
      {R"({"ranks": null})",
       "'ranks' is null, expected a number; leave it out"},
      {R"({"ranks": "four"})", "--ranks = four; expected a number"},
      {R"({"ranks": 4.5})", "--ranks = 4.5; expected a number"},
      {R"({"recompute": false})", "'recompute' is false, expected a text"},
      {R"({"quick": 1})", "'quick' is 1, expected true or false"},
      {R"({"quick": "true"})", "'quick' is \"true\", expected true or false"},
      {R"({"sizes": []})", "'sizes' is [], expected a number or an array"},
      {R"({"sizes": [1, null]})", "'sizes' is [1,null], expected a number"},
      {R"({"sizes": [5000]})", "--sizes: Value 5000 not in range"},
      {R"([4])", "no JSON object, expected flags, as {\"ranks\": 4}"},
      {R"({"ranks": 4)", "no JSON at byte 12, expected flags"},
      {R"({"ranks": 4} 5)", "no JSON at byte"},
      {"", "no JSON at byte 1"},
      {"{\"json\": \"\xff\"}", "no JSON at byte"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(ErrorFor(text), AllOf(StartsWith("tool: "), HasSubstr(error)))
        << text;
  }
}

TEST(JsonConfigTest, WhatIsNoFileIsRefused) {
  for (const std::string& path : {std::string("missing.json"), std::string("."),
                                  std::string("/dev/null"), std::string()}) {
    Tool tool;
    const Outcome outcome = Parsed(tool, {"--config", path});
    EXPECT_EQ(outcome.code, kExitUsage);
    EXPECT_THAT(outcome.err, HasSubstr("'" + path + "' is no file, expected"));
  }
}

TEST(JsonConfigTest, PrintConfigShowsAllThatHasAValueAndRunsNothing) {
  Tool tool;
  const Outcome outcome = Parsed(tool, {"--print-config", "--ranks", "5"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out, R"({
  "ranks": 5,
  "recompute": "full",
  "lr": 0.003,
  "seed": 1,
  "sizes": [
    2,
    4
  ],
  "quick": false
}
)");
}

TEST(JsonConfigTest, WhatPrintConfigPrintsGivesTheSameAgain) {
  for (const Words& words :
       {Words{}, Words{"--quick", "--lr", "1e-9", "--bytes", "4,16Ki"},
        Words{"--budget-mb", "0.1", "--seed", "18446744073709551615"},
        Words{"--sizes", "7", "--lr", "nan", "--recompute", "a b\"c"}}) {
    Tool first, second;
    Words asking = words;
    asking.push_back("--print-config");
    const std::string out = Parsed(first, asking).out;
    EXPECT_EQ(Parsed(second, {"--config", FileWith(out), "--print-config"}).out,
              out);
    EXPECT_EQ(second.budget_mb, first.budget_mb);
    EXPECT_EQ(second.recompute, first.recompute);
    EXPECT_EQ(second.seed, first.seed);
    EXPECT_EQ(second.bytes, first.bytes);
  }
}

TEST(JsonConfigTest, TheFileChoosesTheCommandAndHasItsRequiredFlags) {
  Planner planner;
  const std::string path =
      FileWith(R"({"memory": {"model": "gpt2", "ranks": 8}})");
  const Outcome outcome = Parsed(planner, {"--config", path});
  EXPECT_EQ(outcome.code, std::nullopt) << outcome.err;
  EXPECT_TRUE(*planner.memory);
  EXPECT_FALSE(*planner.shards);
  EXPECT_EQ(planner.memory_model, "gpt2");
  EXPECT_EQ(planner.ranks, 8);
  for (const Words& words :
       {Words{"--config", path, "--print-config"},
        Words{"memory", "--config", path, "--print-config"}}) {
    Planner again;
    EXPECT_EQ(Parsed(again, words).out, R"({
  "memory": {
    "model": "gpt2",
    "ranks": 8
  }
}
)");
  }
}

TEST(JsonConfigTest, TheCommandLineChoosesAmongTheCommandsOfAFile) {
  Planner planner;
  const std::string path = FileWith(
      R"({"memory": {"model": "gpt2"}, "shards": {"model": "llama"}})");
  const Outcome outcome = Parsed(planner, {"shards", "--config", path});
  EXPECT_EQ(outcome.code, std::nullopt) << outcome.err;
  EXPECT_FALSE(*planner.memory);
  EXPECT_EQ(planner.memory_model, "");
  EXPECT_EQ(planner.shards_model, "llama");
  Planner undecided;
  EXPECT_THAT(Parsed(undecided, {"--config", path}).err,
              HasSubstr("more than one subcommand, expected one"));
}

TEST(JsonConfigTest, ACommandsMistakesAreFoundToo) {
  for (const auto& [text, error] :
       std::vector<std::pair<std::string, std::string>>{
           {R"({"memory": 3})", "'memory' is 3, expected an object"},
           {R"({"memory": {"modl": "gpt2"}})", "unknown key 'modl'"},
           {R"({"model": "gpt2"})", "unknown key 'model'"},
           {R"({"memory": {"ranks": 2}})", "--model is required"}}) {
    Planner planner;
    const Outcome outcome = Parsed(planner, {"--config", FileWith(text)});
    EXPECT_EQ(outcome.code, kExitUsage);
    EXPECT_THAT(outcome.err, HasSubstr(error));
  }
}

}  // namespace
}  // namespace trainsys
