/* Times MPI's collectives as bench_collectives times trainsys', to compare.
 * bench_collectives compiles and starts it; by hand:
 *
 *     mpicc -O2 -o mpi_peer mpi_peer.c
 *     echo "0 all-reduce 65536" >cases
 *     mpirun -n 2 ./mpi_peer 100 cases
 *
 * Arguments: milliseconds for each case; a file of lines "number operation
 * bytes". Output, by rank 0: lines "number median", in microseconds. Data is
 * f32, in place. A turn is a barrier and then calls back to back for about
 * 200 us; its time is the slowest rank's, for one call. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxTurns = 1000, kMaxCalls = 1 << 20 };

typedef struct {
  char operation[32];
  long bytes;
  float* data;
  int* counts;  /* of each rank, an even cut */
  int* offsets; /* the same parts' begins */
} Case;

static int rank, ranks;

static void Run(const Case* c) {
  const int elems = (int)(c->bytes / (long)sizeof(float));
  if (!strcmp(c->operation, "all-reduce")) {
    MPI_Allreduce(MPI_IN_PLACE, c->data, elems, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  } else if (!strcmp(c->operation, "reduce-scatter")) {
    MPI_Reduce_scatter(MPI_IN_PLACE, c->data, c->counts, MPI_FLOAT, MPI_SUM,
                       MPI_COMM_WORLD);
  } else if (!strcmp(c->operation, "all-gather")) {
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, c->data, c->counts, c->offsets,
                   MPI_FLOAT, MPI_COMM_WORLD);
  } else if (!strcmp(c->operation, "broadcast")) {
    MPI_Bcast(c->data, elems, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else if (!strcmp(c->operation, "barrier")) {
    MPI_Barrier(MPI_COMM_WORLD);
  } else {
    fprintf(stderr, "mpi_peer: no operation '%s'\n", c->operation);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
}

/* Seconds of this rank for all calls. */
static double Turn(const Case* c, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  for (int i = 0; i < calls; ++i) Run(c);
  return MPI_Wtime() - began;
}

static double Slowest(double seconds) {
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

/* Every rank comes to the same number: it sees the same times. */
static int Calibrate(const Case* c, double* turn_s) {
  int calls = 1;
  Turn(c, 1);
  for (;;) {
    *turn_s = Slowest(Turn(c, calls));
    if (*turn_s < 1e-9) *turn_s = 1e-9;
    const double factor = 200e-6 / *turn_s;
    if (factor < 2 || calls == kMaxCalls) return calls;
    const double more = calls * (factor < 16 ? factor : 16);
    calls = more < kMaxCalls ? (int)more : kMaxCalls;
  }
}

static int Ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Microseconds of one call. */
static double Median(const Case* c, double budget_s) {
  static double times[kMaxTurns];
  double turn_s = 0;
  const int calls = Calibrate(c, &turn_s);
  const int at_least = turn_s > 0.5 ? 3 : 5;
  const double wanted = budget_s / turn_s;
  int turns = wanted < kMaxTurns ? (int)wanted : kMaxTurns;
  if (turns < at_least) turns = at_least;
  for (int i = 0; i < turns; ++i) times[i] = Turn(c, calls);
  MPI_Allreduce(MPI_IN_PLACE, times, turns, MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  qsort(times, (size_t)turns, sizeof times[0], Ascending);
  return times[turns / 2] * 1e6 / calls;
}

static void Prepare(Case* c) {
  const long elems = c->bytes / (long)sizeof(float);
  /* Every page is to be there, which a compiler that sees a 0 would save. */
  static volatile int zero = 0;
  c->data = malloc((size_t)c->bytes + 1);
  memset(c->data, zero, (size_t)c->bytes);
  for (int i = 0; i < ranks; ++i) {
    c->offsets[i] = (int)(elems * i / ranks);
    c->counts[i] = (int)(elems * (i + 1) / ranks) - c->offsets[i];
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  FILE* cases = argc == 3 ? fopen(argv[2], "r") : NULL;
  if (!cases) {
    fprintf(stderr, "usage: mpi_peer MILLISECONDS FILE_OF_CASES\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  Case c;
  c.counts = calloc((size_t)ranks, sizeof(int));
  c.offsets = calloc((size_t)ranks, sizeof(int));
  int number = 0;
  while (fscanf(cases, "%d %31s %ld", &number, c.operation, &c.bytes) == 3) {
    Prepare(&c);
    const double us = Median(&c, atof(argv[1]) / 1e3);
    if (rank == 0) printf("%d %.6g\n", number, us);
    free(c.data);
  }
  MPI_Finalize();
  return 0;
}
