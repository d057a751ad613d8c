#!/usr/bin/env bash
# Ctrl-C: emulate ends after the step, run_checks after the check, report with
# the parts it has; the second time at once. As threads and as processes.
set -u
. tests/tools/tool_test.sh tools/emulate
emulate=$tool

. "${emulate%/tools/emulate}/tests/tools/own_processes.sh"

err_has() { grep -q -- "$1" err; }
err_has_or_ended() { err_has "$1" || has_ended "$pid"; }

# start WORDS FLAGS...: in the background, in a process group of its own, until
# stderr has these words. Sets `pid`. A shell ignores signals of its background
# programs: env does not.
start() {
  local words=$1
  shift
  rm -f result.json
  : >err
  setsid env --default-signal=INT,TERM,HUP \
    "$emulate" --ranks 2 --json result.json "$@" >out 2>err &
  pid=$!
  until_true 100 err_has_or_ended "$words"
  err_has "$words" || fail "$*: no '$words': $(cat err)"
}

# ends NAME CODE SECONDS: it ends in that time with that code and leaves
# nothing.
ends() {
  local code
  until_true "$3" has_ended "$pid" || fail "$1: still running: $(cat err)"
  has_ended "$pid" || kill -KILL "$pid"
  wait "$pid" 2>/dev/null
  code=$?
  [[ $code =~ ^($2)$ ]] || fail "$1: exit code $code: $(cat out err)"
  until_true 10 has_none || fail "$1: left behind: $(ours)"
  [ ! -e result.json.unfinished ] || fail "$1: half a file is left"
}

# has_table NAME: what was done is told, on stdout and in result.json.
has_table() {
  local steps losses
  grep -q 'rank parameters gradients' out || fail "$1: no table: $(cat out err)"
  grep -q 'interrupted after .* nothing is proved' out || fail "$1: $(cat out)"
  grep -q 'PASS memory' out || fail "$1: memory is not compared: $(cat out)"
  ! grep -q 'PASS equal bits' out || fail "$1: proved all the same"
  grep -q '"interrupted": true' result.json || fail "$1: JSON says nothing"
  grep -q '"passed": false' result.json || fail "$1: JSON says passed"
  python3 -m json.tool result.json >/dev/null ||
    fail "$1: no JSON: $(head -c 300 result.json)"
  steps=$(sed -n 's/.*interrupted after \([0-9]*\) of .*/\1/p' out)
  losses=$(sed -n '/^  "losses"/,/]/p' result.json | grep -c '^    [0-9]')
  [ "$steps" = "$losses" ] || fail "$1: $steps steps, $losses losses"
}

endless=(--steps 1000000 --batch 1)

start 'step 1/' "${endless[@]}"
kill -INT "$pid"
ends threads 130 60
has_table threads
grep -qx 'emulate: interrupted after .* of 1000000 steps;.*' err ||
  fail "threads: $(cat err)"

start 'step 1/' "${endless[@]}"
kill -TERM "$pid"
ends terminated 143 60
has_table terminated

# A terminal that is closed.
start 'step 1/' "${endless[@]}"
kill -HUP "$pid"
ends closed 129 60
has_table closed

# Progress that nobody takes ends nothing.
"$emulate" --ranks 2 --steps 1 --batch 1 --json full.json >out 2>/dev/full ||
  fail "full stderr: exit code $?: $(cat out)"
[ -s full.json ] || fail "full stderr: no JSON"

# Nor that all standard streams are closed.
timeout 100 "$emulate" --backend gloo --ranks 2 --steps 1 --batch 1 \
  --json closed.json <&- >&- 2>&-
[ $? = 0 ] || fail "closed streams: no success"
[ -s closed.json ] || fail "closed streams: no JSON"

# Both wait for it when it goes on; which one comes second is the kernel's.
start 'step 1/' "${endless[@]}"
kill -STOP "$pid"
kill -INT "$pid"
kill -TERM "$pid"
kill -CONT "$pid"
ends twice '130|143' 10
[ ! -e result.json ] || fail "twice: a file"

start 'step 3/3' --steps 3 --batch 16
kill -INT "$pid"
ends proof 130 60
grep -q 'rank parameters gradients' out || fail "proof: no table: $(cat out)"
grep -q 'emulate: interrupted in the proof' err || fail "proof: $(cat err)"
grep -q '"interrupted": true' result.json || fail "proof: JSON says nothing"

# As a terminal does it: to all of the group, which has the launcher only.
start 'step 1/' --backend gloo "${endless[@]}"
kill -INT -- "-$pid"
ends gloo 130 60
has_table gloo
grep -q '^\[rank0\]: emulate: interrupted after' err || fail "gloo: $(cat err)"
grep -q '^emulate: stopped by signal 2' err || fail "gloo: $(cat err)"

# One rank gets it, not the launcher: all stop.
start 'step 1/' --backend gloo "${endless[@]}"
for process in $(ours); do
  ! grep -qzx RANK=1 "/proc/$process/environ" || kill -TERM "$process"
done
until_true 60 has_ended "$pid" || fail "one rank: still running"
has_table "one rank"
wait "$pid" 2>/dev/null

# A rank that hangs: the others cannot finish, so the second one kills.
start 'step 1/' --backend gloo "${endless[@]}"
for process in $(ours); do
  ! grep -qzx RANK=1 "/proc/$process/environ" || kill -STOP "$process"
done
interrupt_again() {
  kill -INT "$pid" 2>/dev/null
  has_ended "$pid"
}
until_true 20 interrupt_again || fail "hung: still running"
ends hung 130 1
[ ! -e result.json ] || fail "hung: a file"

# The other tools.
checks=${emulate%emulate}run_checks
for backend in threads gloo; do
  : >out  # that of the run before has the words, too
  rm -f result.json
  setsid env --default-signal=INT,TERM,HUP "$checks" --backend "$backend" \
    --json result.json >out 2>err &
  pid=$!
  out_has_or_ended() { grep -q 'PASS 1' out || has_ended "$pid"; }
  until_true 100 out_has_or_ended
  kill -INT -- "-$pid"
  ends "checks over $backend" 130 20
  grep -q '"interrupted": true' result.json || fail "checks: $(cat result.json)"
done

report=${emulate%emulate}report
: >err
setsid env --default-signal=INT,TERM,HUP "$report" --out page --quick >out 2>err &
pid=$!
until_true 200 err_has_or_ended '^buckets'
kill -INT "$pid"
ends report 130 60
for words in '"interrupted": true' '"memory"'; do
  grep -q "$words" page/report.json || fail "report: no $words: $(cat err)"
done
[ ! -e page/report.html ] || fail "report: half a page"

[ "$failures" = 0 ]
