#include "trainsys/launch/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <system_error>
#include <vector>

#include "collectives/errors.h"
#include "collectives/run_ranks.h"

namespace trainsys {
namespace {

using collectives::InvalidArgument;
using collectives::kMaxRanks;
using collectives::World;

constexpr int kMaxPort = 65535;
constexpr int kMaxRestarts = 1000000;

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  std::string Text(const char* name) const {
    const char* value = lookup_(name);
    return value != nullptr ? value : "";
  }

  bool IsSet(const char* name) const { return !Text(name).empty(); }

  std::optional<int> Number(const char* name, int min, int max) const {
    const std::string text = Text(name);
    if (text.empty()) return std::nullopt;
    int number = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end || number < min ||
        number > max) {
      throw InvalidArgument(fmt::format(
          "{} is \"{}\"; set it to a whole number from {} to {}, or unset it",
          name, text, min, max));
    }
    return number;
  }

 private:
  const Lookup& lookup_;
};

// The names that one launcher uses.
struct Family {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  // How to find the host of rank 0, if there is more to say than that.
  const char* address_hint = "";
};

constexpr Family kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
                              "LOCAL_WORLD_SIZE"};
constexpr Family kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Family kPmi = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                         "MPI_LOCALNRANKS"};
// Slurm tells the number of hosts instead of that of the tasks on this one.
constexpr Family SlurmFamily(const char* size) {
  return {"SLURM_PROCID", size, "SLURM_LOCALID", "",
          ", e.g. export MASTER_ADDR=$(scontrol show hostnames "
          "$SLURM_JOB_NODELIST | head -n 1)"};
}

// Where one launcher has put this process.
struct Place {
  Family family;
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;
  bool has_other_hosts = false;
};

[[noreturn]] void ThrowMissing(const Variables& variables, const char* present,
                               const char* missing, const char* meaning) {
  throw InvalidArgument(fmt::format(
      "{} is \"{}\" but {} is not set; set {} to {}, or unset {}", present,
      variables.Text(present), missing, missing, meaning, present));
}

std::optional<Place> PlaceIn(const Variables& variables, const Family& family) {
  if (!variables.IsSet(family.rank) && !variables.IsSet(family.size)) {
    return std::nullopt;
  }
  if (!variables.IsSet(family.size)) {
    ThrowMissing(variables, family.rank, family.size, "the number of ranks");
  }
  if (!variables.IsSet(family.rank)) {
    ThrowMissing(variables, family.size, family.rank, "this process's rank");
  }
  Place place{.family = family, .local_rank = {}};
  place.size = *variables.Number(family.size, 1, kMaxRanks);
  place.rank = *variables.Number(family.rank, 0, place.size - 1);
  place.local_rank = variables.Number(family.local_rank, 0, place.size - 1);
  const auto local_size = variables.Number(family.local_size, 1, place.size);
  place.has_other_hosts = local_size.value_or(place.size) < place.size;
  return place;
}

// See the header for which of Slurm's processes are ranks.
std::optional<Place> SlurmPlace(const Variables& variables) {
  const bool is_step = variables.IsSet("SLURM_STEP_NUM_TASKS");
  const bool is_shell = !is_step && variables.IsSet("SLURM_JOB_ID");
  if (!variables.IsSet("SLURM_PROCID") || is_shell) return std::nullopt;
  auto place = PlaceIn(variables, SlurmFamily(is_step ? "SLURM_STEP_NUM_TASKS"
                                                      : "SLURM_NTASKS"));
  if (place->size == 1) return std::nullopt;
  const char* hosts = variables.IsSet("SLURM_STEP_NUM_NODES")
                          ? "SLURM_STEP_NUM_NODES"
                          : "SLURM_NNODES";
  place->has_other_hosts =
      variables.Number(hosts, 1, place->size).value_or(1) > 1;
  return place;
}

std::vector<Place> AllPlaces(const Variables& variables) {
  std::vector<Place> places;
  const auto add = [&](std::optional<Place> place) {
    if (place) places.push_back(*place);
  };
  add(PlaceIn(variables, kTorchrun));
  if (!places.empty() && variables.IsSet("TORCHELASTIC_RUN_ID")) return places;
  const size_t others = places.size();
  add(PlaceIn(variables, kOpenMpi));
  add(PlaceIn(variables, kPmi));
  if (places.size() == others) add(SlurmPlace(variables));
  return places;
}

void RequireSame(const char* name_a, int a, const char* name_b, int b) {
  if (a == b) return;
  throw InvalidArgument(fmt::format(
      "{}={} and {}={} disagree; unset the variables of one of the launchers",
      name_a, a, name_b, b));
}

void RequireAgreement(const std::vector<Place>& places) {
  const Place& first = places.front();
  for (const Place& place : places) {
    RequireSame(first.family.rank, first.rank, place.family.rank, place.rank);
    RequireSame(first.family.size, first.size, place.family.size, place.size);
  }
}

int LocalRank(const std::vector<Place>& places) {
  for (const Place& place : places) {
    if (place.local_rank) return *place.local_rank;
  }
  return places.front().rank;
}

std::string Address(const Variables& variables,
                    const std::vector<Place>& places) {
  if (variables.IsSet("MASTER_ADDR")) return variables.Text("MASTER_ADDR");
  for (const Place& place : places) {
    if (!place.has_other_hosts) continue;
    throw InvalidArgument(fmt::format(
        "{}={} ranks are on several hosts but MASTER_ADDR is not set; set it "
        "to rank 0's host on every host{}",
        place.family.size, place.size, place.family.address_hint));
  }
  return World().address;
}

}  // namespace

std::optional<World> WorldFromEnvironment(const Lookup& lookup) {
  const Variables variables(lookup);
  const std::vector<Place> places = AllPlaces(variables);
  if (places.empty()) return std::nullopt;
  RequireAgreement(places);
  World world;
  world.rank = places.front().rank;
  world.ranks = places.front().size;
  world.local_rank = LocalRank(places);
  world.address = Address(variables, places);
  world.port =
      variables.Number("MASTER_PORT", 1, kMaxPort).value_or(world.port);
  if (variables.IsSet(kTorchrun.rank)) {
    world.has_agent_store =
        variables.Text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    world.restarts =
        variables.Number("TORCHELASTIC_RESTART_COUNT", 0, kMaxRestarts)
            .value_or(0);
  }
  return world;
}

}  // namespace trainsys
