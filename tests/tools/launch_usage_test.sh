#!/usr/bin/env bash
# emulate and run_checks under launchers: flags and variables that contradict
# each other are one line and exit code 2, and no process is started.
set -u
emulate=$PWD/tools/emulate
run_checks=$PWD/tools/run_checks
cd "$TEST_TMPDIR" || exit 1
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# refuses WORDS [VARIABLE=VALUE...] TOOL FLAGS...: exit code 2, nothing on
# stdout, one line with WORDS.
refuses() {
  local words=$1 code
  shift
  timeout 60 env "$@" >out 2>err
  code=$?
  [ "$code" = 2 ] || fail "exit code $code for $*"
  [ ! -s out ] || fail "stdout for $*: $(cat out)"
  [ "$(wc -l <err)" = 1 ] || fail "not one line for $*: $(cat err)"
  grep -qF -- "$words" err || fail "no '$words' for $*: $(cat err)"
  ! grep -q '^\[rank' err || fail "a process was started for $*"
}

for tool in "$emulate" "$run_checks"; do
  refuses "--backend" "$tool" --backend carrier-pigeon
  refuses "has no NCCL" "$tool" --backend nccl
  refuses "expected --backend gloo" "$tool" --gloo-native
  refuses "expected --backend gloo" "$tool" --backend threads --gloo-native
  refuses "WORLD_SIZE is not set" RANK=0 "$tool"
  refuses "RANK is not set" WORLD_SIZE=4 "$tool"
  refuses "RANK is \"one\"" RANK=one WORLD_SIZE=4 "$tool"
  refuses "RANK is \"4\"" RANK=4 WORLD_SIZE=4 "$tool"
  refuses "MASTER_PORT is \"0\"" RANK=1 WORLD_SIZE=4 MASTER_PORT=0 "$tool"
  refuses "disagree" RANK=1 WORLD_SIZE=4 \
    OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 "$tool"
  refuses "rank 1 of 4" RANK=1 WORLD_SIZE=4 "$tool" --backend threads
  refuses "rank 1 of 4" OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 \
    "$tool" --backend threads
done

refuses "--ranks is 3, but the launcher started 4" \
  RANK=1 WORLD_SIZE=4 "$emulate" --ranks 3
refuses "run_checks: needs 4 processes, but the launcher started 2" \
  RANK=1 WORLD_SIZE=2 "$run_checks"

# Refused by the launcher, not by each of its processes.
refuses "ranks is 0" "$emulate" --backend gloo --ranks 0
refuses "steps is -1" "$emulate" --backend gloo --steps -1
refuses "missing" "$emulate" --backend gloo --data missing
refuses "cannot write --json" "$emulate" --backend gloo --json no/such/out.json
refuses "--break" "$run_checks" --backend gloo --break nothing

# One process alone contradicts no flag.
RANK=0 WORLD_SIZE=1 "$emulate" --backend threads --ranks 2 --steps 1 --batch 1 \
  >out 2>err || fail "threads under a launcher of one: $(cat err)"
grep -q "2 ranks as threads" out || fail "$(cat out)"

[ "$failures" = 0 ]
