#!/usr/bin/env bash
# bench_collectives: every asked-for case is in the table and in the JSON, with
# the floor and each peer where it is to be; an MPI that is missing or broken is
# one line; wrong usage is one line and exit code 2; Ctrl-C writes the rows that
# are done. No time is judged.
. tests/tools/bench_test.sh
. tests/tools/tool_test.sh tools/bench_collectives
bench=$tool

# runs FLAGS...: exit code 0, 80 columns, rows in r.json.
runs() {
  rm -f r.json
  timeout 100 "$bench" --budget-ms 1 --json r.json "$@" >out 2>err ||
    fail "exit code $? for $*: $(cat err)"
  fits out
  [ -s r.json ] || fail "no JSON for $*"
}

# expect NUMBER PATTERN: that many lines of r.json match.
expect() {
  local found
  found=$(grep -cE "$2" r.json)
  [ "$found" = "$1" ] || fail "$found lines of $2, expected $1"
}

refuses "operation 'scan'" --only scan
refuses "element type 'f16'" --dtypes f16
refuses "bytes is 'many'" --bytes many
refuses "bytes is '0'" --bytes 0
refuses "bytes is '2000Mi'" --bytes 2000Mi
refuses "whole elements of f32" --bytes 6
refuses "--ranks" --ranks 0
refuses "--calls" --calls none
refuses "--budget-ms" --budget-ms -1
refuses "--backend nccl" --backend nccl
refuses "cannot write --json" --json no/such/out.json
refuses "--nonsense" --nonsense
RANK=0 WORLD_SIZE=2 refuses "needs 4 processes" --ranks 4

"$bench" --help >out 2>err || fail "--help"
grep -q Example out || fail "--help shows no example"

# Four operations in two sizes and two types, and a barrier, blocking and not.
runs --ranks 1,2,3 --bytes 4,16KiB --no-peers
expect 102 '"op": '
expect 6 '"op": "barrier"'
expect 34 '"ranks": 3,'
expect 48 '"bytes": 16384'
expect 48 '"dtype": "bf16"'
expect 51 '"async": true'
expect 102 '"time_us": [0-9.e-]+,?$'
expect 64 '"floor_ratio": [0-9.e-]+,?$'
expect 102 '"gloo_ratio": null'
for heading in "all-reduce, 1 rank" "barrier, 3 ranks"; do
  grep -qx "$heading" out || fail "no '$heading'"
done
grep -qE '^ +16 KiB bf16 async ' out || fail "no row of 16 KiB: $(cat out)"
says 'j["tool"] == "bench_collectives" and not j["interrupted"]' r.json

# More ranks than are compared.
runs --ranks 9 --bytes 64 --only all-gather --dtypes f32 --calls async \
  --no-table
[ ! -s out ] || fail "--no-table printed $(cat out)"
expect 1 '"async": true'
expect 0 '"async": false'
expect 0 '"floor_ratio": [0-9]'

# An MPI of which only the surroundings are real.
mkdir fake
cat >fake/mpicc <<'END'
#!/bin/sh
grep -q MPI_Allreduce mpi_peer.c
END
cat >fake/mpirun <<'END'
#!/bin/sh
if [ "$1" = --version ]; then echo "fake 1.0"; exit; fi
cat "$5" >&2
echo "0 12345"
END
chmod +x fake/*
PATH=$PWD/fake:$PATH runs --ranks 2 --bytes 4 --only all-reduce
grep -q 'MPI fake 1.0' out || fail "whose MPI: $(cat out)"
expect 4 '"gloo_threads_us": [0-9]'
expect 4 '"gloo_processes_us": [0-9]'
expect 4 '"gloo_ratio": [0-9]'
expect 2 '"mpi_us": 12345.0' # not bf16

# Ctrl-C while it runs, which would take long.
cat >>fake/mpirun <<'END'
if [ -n "${WAIT:-}" ]; then touch has_begun; exec sleep 1000; fi
END
WAIT=1 PATH=$PWD/fake:$PATH interrupts "has_file has_begun" --budget-ms 1 \
  --ranks 2,3 --bytes 4 --only all-reduce
says 'len(rows) == 4 and rows[3]["ranks"] == 2' i.json
says 'all(r["gloo_us"] and r["mpi_us"] is None for r in rows)' i.json
[ "$(grep -cE '^ +4 B ' out)" = 4 ] || fail "no rows after Ctrl-C: $(cat out)"

echo 'exit 3' >>fake/mpirun
PATH=$PWD/fake:$PATH runs --ranks 2 --bytes 4 --only all-reduce
grep -q '^MPI: exit code 3: 0 all-reduce 4$' err || fail "no note: $(cat err)"
expect 4 '"mpi_us": null'
expect 1 '"MPI: exit code 3'

echo 'echo no compiler; exit 1' >>fake/mpicc
PATH=$PWD/fake:$PATH runs --ranks 1 --bytes 4 --only all-reduce
grep -q 'MPI mpicc fails: no compiler' out || fail "mpicc: $(cat out)"

/usr/bin/env PATH=/none "$bench" --budget-ms 1 --ranks 1 --bytes 4 \
  --only all-reduce >out 2>err || fail "without MPI: $(cat err)"
grep -q 'MPI not installed' out || fail "no MPI: $(cat out)"

# The real one, where it compiles.
echo '#include <mpi.h>' >try.c
if mpicc -c try.c 2>err && mpirun --version >out 2>&1; then
  runs --ranks 2 --bytes 4,16Ki
  expect 18 '"mpi_ratio": [0-9]'
else
  echo "not run: no MPI that compiles"
fi

# Processes for ranks.
runs --backend gloo --ranks 1,2 --bytes 4 --only all-reduce,barrier
grep -q '^\[rank0\]: collectives, ranks as processes over Gloo$' out ||
  fail "gloo: $(cat out)"
! grep -q '^\[rank1\]' out err || fail "rank 1 printed"
expect 12 '"op": '
expect 6 '"ranks": 2,'
expect 12 '"floor_us": null'

# Ctrl-C between two cases, ranks as threads and as processes.
interrupts "shows cases err" --budget-ms 700 --no-peers --ranks 2,3
says '0 < len(rows) < 114 and len(rows) % 2 == 0' i.json
interrupts "shows cases err" --budget-ms 700 --backend gloo --ranks 2
says '0 < len(rows) < 58 and rows[0]["ranks"] == 2' i.json

echo "took $SECONDS s"
[ "$failures" = 0 ]
