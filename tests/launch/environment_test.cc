#include "trainsys/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "collectives/errors.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using collectives::World;
using ::testing::HasSubstr;
using Table = std::map<std::string, std::string>;

std::optional<World> Read(const Table& table) {
  return WorldFromEnvironment([&](const char* name) -> const char* {
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second.c_str();
  });
}

// What reading it says, or what it found where that is no error.
std::string ErrorOf(const Table& table) {
  try {
    const auto world = Read(table);
    return world ? "a rank" : "no launcher";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

std::string Describe(const std::optional<World>& world) {
  if (!world) return "no launcher";
  return std::to_string(world->rank) + "/" + std::to_string(world->ranks) +
         " local " + std::to_string(world->local_rank) + " at " +
         world->address + ":" + std::to_string(world->port) +
         (world->has_agent_store ? " agent" : "") + " restarts " +
         std::to_string(world->restarts);
}

Table With(Table table, const Table& more) {
  for (const auto& [name, value] : more) table[name] = value;
  return table;
}

const Table kTorchrun = {{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "node0"},
                         {"MASTER_PORT", "1234"},
                         {"TORCHELASTIC_RUN_ID", "none"},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                         {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Table kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Table kPmi = {{"PMI_RANK", "2"},
                    {"PMI_SIZE", "3"},
                    {"MPI_LOCALRANKID", "2"},
                    {"MPI_LOCALNRANKS", "3"}};
const Table kSlurm = {{"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "3"},
                      {"SLURM_NTASKS", "4"},  {"SLURM_STEP_NUM_TASKS", "4"},
                      {"SLURM_LOCALID", "3"}, {"SLURM_STEP_NUM_NODES", "1"},
                      {"SLURM_NNODES", "1"}};

TEST(EnvironmentTest, WithoutVariablesThereIsNoLauncher) {
  EXPECT_EQ(Describe(Read({})), "no launcher");
  EXPECT_EQ(Describe(Read({{"MASTER_ADDR", "h"}, {"MASTER_PORT", "0"}})),
            "no launcher");
  EXPECT_EQ(Describe(Read({{"RANK", ""}, {"WORLD_SIZE", ""}})), "no launcher");
}

TEST(EnvironmentTest, EachLaunchersVariablesAreRead) {
  EXPECT_EQ(Describe(Read(kTorchrun)),
            "5/8 local 1 at node0:1234 agent restarts 2");
  EXPECT_EQ(Describe(Read(kOpenMpi)),
            "1/2 local 1 at 127.0.0.1:29500 restarts 0");
  EXPECT_EQ(Describe(Read(kPmi)), "2/3 local 2 at 127.0.0.1:29500 restarts 0");
  EXPECT_EQ(Describe(Read(kSlurm)),
            "3/4 local 3 at 127.0.0.1:29500 restarts 0");
}

TEST(EnvironmentTest, RankAndSizeSetByHandAreEnough) {
  EXPECT_EQ(Describe(Read({{"RANK", "1"}, {"WORLD_SIZE", "2"}})),
            "1/2 local 1 at 127.0.0.1:29500 restarts 0");
  EXPECT_EQ(Describe(Read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}})),
            "0/2 local 0 at 127.0.0.1:29500 restarts 0");
}

TEST(EnvironmentTest, TheMeetingPointIsReadForEveryLauncher) {
  for (const Table& table : {kOpenMpi, kPmi, kSlurm}) {
    const auto world =
        Read(With(table, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "65535"}}));
    ASSERT_TRUE(world);
    EXPECT_EQ(world->address, "h");
    EXPECT_EQ(world->port, 65535);
  }
}

TEST(EnvironmentTest, OnlyTorchrunServesTheStore) {
  const Table agent = {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                       {"TORCHELASTIC_RESTART_COUNT", "1"}};
  EXPECT_FALSE(Read(With(kOpenMpi, agent))->has_agent_store);
  EXPECT_EQ(Read(With(kOpenMpi, agent))->restarts, 0);
  EXPECT_FALSE(
      Read(With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))
          ->has_agent_store);
}

TEST(EnvironmentTest, SlurmsShellsAreNoRanks) {
  // salloc
  EXPECT_EQ(ErrorOf({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}}),
            "no launcher");
  // sbatch
  EXPECT_EQ(ErrorOf({{"SLURM_JOB_ID", "7"},
                     {"SLURM_NTASKS", "4"},
                     {"SLURM_PROCID", "0"},
                     {"SLURM_NNODES", "2"}}),
            "no launcher");
  // srun --pty bash, in an allocation of more
  EXPECT_EQ(ErrorOf({{"SLURM_JOB_ID", "7"},
                     {"SLURM_NTASKS", "4"},
                     {"SLURM_PROCID", "0"},
                     {"SLURM_STEP_NUM_TASKS", "1"}}),
            "no launcher");
}

TEST(EnvironmentTest, ALauncherInsideAnothersJobCounts) {
  const Table step = {{"SLURM_JOB_ID", "7"},
                      {"SLURM_PROCID", "1"},
                      {"SLURM_STEP_NUM_TASKS", "2"}};
  EXPECT_EQ(Read(With(kTorchrun, step))->rank, 5);
  EXPECT_EQ(Read(With(kOpenMpi, With(step, {{"SLURM_PROCID", "0"}})))->rank, 1);
  EXPECT_EQ(Read(With(kTorchrun, kOpenMpi))->rank, 5);
}

TEST(EnvironmentTest, LaunchersThatAgreeAreFine) {
  const Table same = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  EXPECT_EQ(Describe(Read(With(kOpenMpi, same))),
            "1/2 local 1 at 127.0.0.1:29500 restarts 0");
  EXPECT_EQ(Read(With(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}))->rank,
            3);
}

TEST(EnvironmentTest, TheLocalRankComesFromWhoeverKnowsIt) {
  const Table known = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}};
  EXPECT_EQ(Read(With(kOpenMpi, known))->local_rank, 0);
}

TEST(EnvironmentTest, LaunchersThatDisagreeAreNamed) {
  EXPECT_EQ(ErrorOf({{"RANK", "1"},
                     {"WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "2"}}),
            "RANK=1 and OMPI_COMM_WORLD_RANK=0 disagree; unset the variables "
            "of one of the launchers");
  EXPECT_THAT(ErrorOf(With(kOpenMpi, {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}})),
              HasSubstr("OMPI_COMM_WORLD_SIZE=2 and PMI_SIZE=4 disagree"));
  EXPECT_THAT(ErrorOf(With(kSlurm, {{"RANK", "0"}, {"WORLD_SIZE", "4"}})),
              HasSubstr("RANK=0 and SLURM_PROCID=3 disagree"));
}

TEST(EnvironmentTest, AMissingPartnerIsAskedFor) {
  EXPECT_EQ(ErrorOf({{"RANK", "1"}}),
            "RANK is \"1\" but WORLD_SIZE is not set; set WORLD_SIZE to the "
            "number of ranks, or unset RANK");
  EXPECT_EQ(ErrorOf({{"WORLD_SIZE", "2"}}),
            "WORLD_SIZE is \"2\" but RANK is not set; set RANK to this "
            "process's rank, or unset WORLD_SIZE");
  EXPECT_THAT(ErrorOf({{"OMPI_COMM_WORLD_RANK", "0"}}),
              HasSubstr("OMPI_COMM_WORLD_SIZE is not set"));
  EXPECT_THAT(ErrorOf({{"PMI_SIZE", "2"}}), HasSubstr("PMI_RANK is not set"));
  EXPECT_THAT(ErrorOf({{"SLURM_PROCID", "0"}}),
              HasSubstr("SLURM_NTASKS is not set"));
}

TEST(EnvironmentTest, NumbersMustBeNumbersInTheirRange) {
  const Table good = {{"RANK", "1"}, {"WORLD_SIZE", "4"}};
  EXPECT_EQ(ErrorOf(With(good, {{"RANK", "4"}})),
            "RANK is \"4\"; set it to a whole number from 0 to 3, or unset it");
  const std::pair<const char*, const char*> bad[] = {
      {"RANK", "-1"},          {"RANK", "one"},
      {"RANK", "1x"},          {"RANK", " 1"},
      {"RANK", "1.0"},         {"RANK", "99999999999999999999"},
      {"WORLD_SIZE", "0"},     {"WORLD_SIZE", "-4"},
      {"WORLD_SIZE", "1025"},  {"LOCAL_RANK", "4"},
      {"LOCAL_RANK", "a"},     {"LOCAL_WORLD_SIZE", "5"},
      {"MASTER_PORT", "0"},    {"MASTER_PORT", "65536"},
      {"MASTER_PORT", "http"}, {"TORCHELASTIC_RESTART_COUNT", "-1"}};
  for (const auto& [name, value] : bad) {
    EXPECT_THAT(ErrorOf(With(good, {{name, value}})),
                HasSubstr(std::string(name) + " is \"" + value +
                          "\"; set it to a whole number from "));
  }
  EXPECT_EQ(ErrorOf({{"RANK", "1023"}, {"WORLD_SIZE", "1024"}}), "a rank");
}

TEST(EnvironmentTest, SeveralHostsNeedAnAddress) {
  EXPECT_EQ(ErrorOf(With(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})),
            "OMPI_COMM_WORLD_SIZE=2 ranks are on several hosts but MASTER_ADDR "
            "is not set; set it to rank 0's host on every host");
  EXPECT_THAT(ErrorOf(With(kPmi, {{"MPI_LOCALNRANKS", "1"}})),
              HasSubstr("PMI_SIZE=3 ranks are on several hosts"));
  EXPECT_EQ(ErrorOf(With(kSlurm, {{"SLURM_STEP_NUM_NODES", "2"}})),
            "SLURM_STEP_NUM_TASKS=4 ranks are on several hosts but MASTER_ADDR "
            "is not set; set it to rank 0's host on every host, e.g. export "
            "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head "
            "-n 1)");
  EXPECT_EQ(ErrorOf({{"SLURM_PROCID", "0"},
                     {"SLURM_NTASKS", "2"},
                     {"SLURM_NNODES", "2"},
                     {"MASTER_ADDR", "h"}}),
            "a rank");
}

}  // namespace
}  // namespace trainsys
