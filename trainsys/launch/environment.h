// Which rank of how many this process is, as its launcher's variables say.
#pragma once

#include <functional>
#include <optional>

#include "collectives/c10d/world.h"

namespace trainsys {

// A variable's value, or null where it is not set: std::getenv, or a table.
using Lookup = std::function<const char*(const char*)>;

// Reads the variables of
//
//   torchrun, by hand  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
//                      TORCHELASTIC_USE_AGENT_STORE, TORCHELASTIC_RESTART_COUNT
//   Open MPI           OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   MPICH, Intel MPI   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS
//   srun               SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS,
//                      SLURM_LOCALID, SLURM_STEP_NUM_NODES or SLURM_NNODES
//   all of them        MASTER_ADDR (127.0.0.1), MASTER_PORT (29500)
//
// An empty variable counts as not set.
// Result: nullopt where no launcher started this process. A process that is
// not told its local rank takes its rank for it, as on one host.
//
// Several launchers: they must agree on rank and ranks, with two exceptions,
// where one runs inside the other's job. torchrun (TORCHELASTIC_RUN_ID is set)
// counts alone; and Slurm does not count beside an MPI's launcher.
//
// Slurm sets variables in its shells, too. Those are no launcher, and what they
// start is free to start ranks of its own:
//   - salloc's shell, which has SLURM_NTASKS and no SLURM_PROCID;
//   - a batch script, which has SLURM_JOB_ID and SLURM_PROCID=0 but, unlike a
//     step of srun, no SLURM_STEP_NUM_TASKS;
//   - a step of one task (srun --pty bash): there is nobody to join.
//
// Threads: as `lookup`.
// Errors: InvalidArgument, one line: a rank without its size or a size without
// its rank, no number or one out of range, launchers that disagree, and several
// hosts without MASTER_ADDR.
std::optional<collectives::World> WorldFromEnvironment(const Lookup& lookup);

}  // namespace trainsys
