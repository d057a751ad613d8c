#!/usr/bin/env bash
# emulate and run_checks with processes for ranks, over Gloo: the same results
# as threads, however the processes are started; and when one dies or stops,
# the others say who and end.
set -u
emulate=$PWD/tools/emulate
run_checks=$PWD/tools/run_checks
cd "$TEST_TMPDIR" || exit 1
failures=0

. "${emulate%/tools/emulate}/tests/tools/own_processes.sh"

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

expect_none_left() {
  until_true 10 has_none || fail "left behind by $1: $(ours)"
  end_ours
}

# A port that nobody listens on, outside the range that the kernel deals out.
free_port() {
  local port
  for _ in {1..100}; do
    port=$((15000 + RANDOM % 15000))
    (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

hash_in() { grep -o 'parameter hash [0-9a-f]*' "$1"; }

# expect_proved WHAT: file `out` has the hash of the threads, and the proofs.
expect_proved() {
  [ "$(hash_in out)" = "$hash" ] || fail "$1: not the threads' hash: $(cat out)"
  [ "$(grep -c 'PASS' out)" = 3 ] || fail "$1: not proved: $(cat out)"
}

small=(--steps 2 --batch 1)
timeout 100 "$emulate" --ranks 2 "${small[@]}" >out 2>err ||
  fail "threads: $(cat err)"
hash=$(hash_in out)
[ -n "$hash" ] || fail "threads: no hash"

# Started by the tool itself.

timeout 100 "$emulate" --backend gloo --ranks 2 "${small[@]}" >out 2>err ||
  fail "exit code $? with gloo: $(cat err)"
expect_proved "gloo"
! grep -v '^\[rank0\]: ' out err || fail "gloo: lines without a prefix"
grep -q '2 ranks as processes over Gloo' out || fail "gloo: $(cat out)"

timeout 100 "$run_checks" >threads 2>err || fail "run_checks: $(cat err)"
timeout 100 "$run_checks" --backend gloo >out 2>err ||
  fail "exit code $? of run_checks with gloo: $(cat out err)"
[ "$(grep -c '^\[rank0\]: PASS' out)" = 4 ] || fail "run_checks: $(cat out)"
[ "$(tail -n 1 out)" = "[rank0]: 4 / 4 checks passed" ] ||
  fail "run_checks: $(cat out)"
sed 's/^\[rank0\]: //' out | diff threads - ||
  fail "run_checks: other figures than with threads"

timeout 100 "$run_checks" --backend gloo --break no-average >out 2>err
code=$?
[ "$code" = 1 ] || fail "exit code $code with --break"
grep -q '^\[rank0\]: FAIL 1 ' out || fail "--break went unnoticed: $(cat out)"

# Ranks that do not come to their end.

endless=(--steps 100000 --batch 1)

# await_step1 PID NAME: until that run trains, as its NAME.err shows.
has_begun_or_ended() { grep -q 'step 1/' "$2.err" || has_ended "$1"; }
await_step1() {
  until_true 60 has_begun_or_ended "$@"
  grep -q 'step 1/' "$2.err" || fail "$2: no progress: $(cat "$2.err")"
}

# start NAME FLAGS...: emulate with two processes, in the background; returns
# when they train. Sets `launcher` and `victim`, rank 1's process.
start() {
  local name=$1 pid
  shift
  : >"$name.err"
  "$emulate" --backend gloo --ranks 2 "${endless[@]}" "$@" >out 2>"$name.err" &
  launcher=$!
  await_step1 "$launcher" "$name"
  victim=
  for pid in $(ours); do
    grep -qx "PPid:[[:space:]]$launcher" "/proc/$pid/status" &&
      grep -qzx RANK=1 "/proc/$pid/environ" && victim=$pid
  done
  [ -n "$victim" ] || fail "$name: rank 1 does not run"
}

# ends PID SECONDS NAME CODE: it ends in that time with that exit code.
ends() {
  local code
  until_true "$2" has_ended "$1" || {
    fail "$3: still running after $2 s: $(cat "$3.err")"
    kill -KILL "$1"
  }
  wait "$1" 2>/dev/null
  code=$?
  [ "$code" = "$4" ] || fail "$3: exit code $code"
}

# says WORDS NAME: NAME.err has a line that matches them.
says() { grep -q -- "$1" "$2.err" || fail "$2: no '$1': $(cat "$2.err")"; }

# This one takes some seconds; meanwhile:
start stopped --timeout-s 5
stopped=$launcher
kill -STOP "$victim"

# Started by somebody else.

# rank_of N VARIABLE_OF_RANK VARIABLE_OF_SIZE FLAGS...: a process by hand.
rank_of() {
  local rank=$1 rank_name=$2 size_name=$3
  shift 3
  exec timeout 100 env "$rank_name=$rank" "$size_name=2" MASTER_PORT="$port" \
    "$emulate" "$@"
}

for names in "RANK WORLD_SIZE" "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE" \
  "PMI_RANK PMI_SIZE"; do
  port=$(free_port)
  # shellcheck disable=SC2086
  (rank_of 1 $names "${small[@]}") >out1 2>err1 &
  other=$!
  # shellcheck disable=SC2086
  (rank_of 0 $names "${small[@]}") >out 2>err || fail "$names: $(cat err)"
  wait "$other" || fail "$names: rank 1: exit code $?: $(cat err1)"
  expect_proved "$names"
  [ ! -s out1 ] || fail "$names: rank 1 printed $(cat out1)"
done

if command -v mpirun >/dev/null; then
  echo "runs under mpirun"
  MASTER_PORT=$(free_port) OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    timeout 100 mpirun --oversubscribe -n 2 "$emulate" "${small[@]}" \
    >out 2>err || fail "mpirun: exit code $?: $(cat err)"
  expect_proved "mpirun"
else
  echo "not run: mpirun is not installed"
fi
# -r and -t: Debian 12's torchrun fails without them.
if command -v torchrun >/dev/null; then
  echo "runs under torchrun"
  timeout 100 torchrun --no_python --standalone -r 1 -t 1 --log_dir torchrun \
    --nproc_per_node 2 "$emulate" "${small[@]}" >out 2>err ||
    fail "torchrun: exit code $?: $(cat out err)"
  expect_proved "torchrun"
else
  echo "not run: torchrun is not installed"
fi

# What became of the stopped one.
ends "$stopped" 30 stopped 1
says '^\[rank0\]: emulate: .*timed out after 5 s waiting for rank 1' stopped
says '^emulate: rank 0 .*; stopped the others$' stopped
expect_none_left stopped

start killed
kill -KILL "$victim"
ends "$launcher" 20 killed 137
says '^\[rank0\]: emulate: .*rank 1' killed
says '^emulate: rank 1 was killed by signal 9' killed
expect_none_left killed

start abandoned
kill -KILL "$launcher"
ends "$launcher" 10 abandoned 137
expect_none_left abandoned

# By hand, so that rank 0 takes along the store that it serves.
port=$(free_port)
: >host.err
RANK=0 WORLD_SIZE=2 MASTER_PORT=$port "$emulate" "${endless[@]}" \
  >out 2>host.err &
host=$!
RANK=1 WORLD_SIZE=2 MASTER_PORT=$port "$emulate" "${endless[@]}" \
  >out 2>survivor.err &
survivor=$!
await_step1 "$host" host
kill -KILL "$host"
ends "$host" 10 host 137
ends "$survivor" 20 survivor 1
says "^emulate: .*rank 0 at 127.0.0.1:$port, which serves the store" survivor
expect_none_left survivor

echo "took $SECONDS s"
[ "$failures" = 0 ]
