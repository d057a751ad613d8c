#!/usr/bin/env bash
# emulate: wrong usage is one line and exit code 2; equal seeds give equal
# parameters, whatever the bucket size and the ZeRO stage; the proof passes.
. tests/tools/tool_test.sh tools/emulate
emulate=$tool

: >empty
echo short >short
refuses "ranks is 0, expected 1 to" --ranks 0
refuses "ranks is 10000000, expected 1 to" --ranks 10000000
refuses "--ranks" --ranks 99999999999999999999
refuses "--ranks" --ranks four
refuses "steps is -1" --steps -1
refuses "batch is 0" --batch 0
refuses "bucket-kb is 0" --bucket-kb 0
refuses "recompute" --recompute half
refuses "recompute" --recompute every-0
refuses "activation-budget-mb is 0" --activation-budget-mb 0
refuses "activation-budget-mb is nan" --activation-budget-mb nan
refuses "excludes" --activation-budget-mb 20 --recompute full
refuses "bytes" --activation-budget-mb 1
refuses "ddp is 'rings', expected simple, async or bucketed" --ddp rings
refuses "zero is 3" --zero 3
refuses "partition is 'half', expected" --partition half
refuses "expected zero 1 or 2" --zero 0 --overlap-step
refuses "expected ddp bucketed" --zero 2 --ddp simple
refuses "lr is nan" --lr nan
refuses "--seed: is -1, expected a whole number from 0 on" --seed -1
refuses "--nonsense" --nonsense
refuses "missing" --data missing
refuses "is empty" --data empty
refuses "has 6 bytes" --data short
refuses "directory" --data .
refuses "data" --data ""
refuses "cannot write --json" --json no/such/folder/out.json
refuses "no regular file" --json .
refuses "no regular file" --json /dev/null
refuses "cannot write --timeline-svg" --timeline-svg no/such/folder/out.svg
refuses "expected two files" --json same --timeline-svg same
refuses "memory" --ranks 200 --batch 1000

"$emulate" --help >out 2>err || fail "--help"
grep -q Example out || fail "--help shows no example"

# hash_of FLAGS...: trains a little and prints hash and losses.
passes=3  # lines that say so
hash_of() {
  "$emulate" --ranks 2 --steps 2 --batch 1 --json result.json "$@" >out 2>err ||
    fail "exit code $? for $*: $(cat out err)"
  [ "$(grep -c '^PASS' out)" = "$passes" ] || fail "not proved with $*: $(cat out)"
  [ ! -e result.json.unfinished ] || fail "an unfinished file is left"
  grep -A2 '^  "losses"' result.json
  grep '^  "parameter_hash"' result.json
}

fits_80() { # FILE...
  awk 'length > 80 { print FILENAME ": " $0; long = 1 } END { exit long }' \
    "$@" || fail "wider than 80 columns"
}

first=$(hash_of)
fits_80 out err
grep -q '^  "backend": "threads"' result.json || fail "no backend in JSON"
[ -n "$first" ] || fail "no hash"
[ "$first" = "$(hash_of)" ] || fail "another run, another result"
[ "$first" = "$(hash_of --bucket-kb 64)" ] || fail "bucket size counts"
[ "$first" = "$(hash_of --zero 0)" ] || fail "ZeRO stage counts"
# Each stage with each cut, stepping after backward and inside it.
for zero in 1 2; do
  for partition in flat tensor balanced; do
    for step in "" --overlap-step; do
      # shellcheck disable=SC2086  # none or one word
      [ "$first" = "$(hash_of --zero $zero --partition $partition $step)" ] ||
        fail "--zero $zero --partition $partition $step counts"
    done
  done
done
[ "$first" = "$(hash_of --reduce-scatter)" ] || fail "--reduce-scatter counts"
[ "$first" = "$(hash_of --reduce-scatter --partition tensor --overlap-step)" ] ||
  fail "--reduce-scatter --partition tensor --overlap-step counts"
for ddp in simple async; do  # their memory has no budget
  [ "$first" = "$(passes=2 hash_of --ddp $ddp --partition tensor)" ] ||
    fail "--ddp $ddp counts"
done
[ "$first" = "$(hash_of --recompute none --timeline --timeline-svg p.svg)" ] ||
  fail "recomputation counts"
grep -q '^  bucket 0 ' out || fail "no timeline"
fits_80 out err
grep -q '<svg' p.svg || fail "no picture"
grep -q 'recompute none' out || fail "recomputed all the same"
[ "$first" = "$(hash_of --recompute selective)" ] || fail "selective counts"
[ "$first" = "$(hash_of --activation-budget-mb 10)" ] || fail "the budget counts"
grep -q 'recompute blocks .* (activations within 10 MB)' out || fail "no plan is shown: $(head -1 out)"
grep -q '^  activations  .* 0  ' out || fail "no activations in the ledger"
grep -q '"as_budgeted": true' result.json || fail "no memory in JSON"
[ "$first" != "$(hash_of --seed 2)" ] || fail "the seed does not count"

# Into a file: plain lines, from the first step on.
grep -qx 'step 1/2 | loss [0-9.]* | [0-9]* tokens/s | .* left' err ||
  fail "no progress: $(cat err)"
! grep -q $'[\r\033]' out err || fail "control characters in a file"

# in_terminal COLUMNS VARIABLE=VALUE...: what a terminal of that width gets.
in_terminal() {
  local columns=$1
  shift
  env -u NO_COLOR TERM=xterm "$@" script -qec "stty cols $columns; \
    '$emulate' --ranks 2 --steps 2 --batch 1" /dev/null >screen 2>&1 </dev/null ||
    fail "exit code $? in a terminal: $(cat screen)"
}
green=$'\033[32mPASS\033[0m'
in_terminal 40 COLUMNS=200
grep -qF "$green equal bits" screen || fail "no green PASS: $(cat -v screen)"
tr '\r' '\n' <screen | grep -F $'\033[K' | sed 's/\x1b\[K//' >drawn
grep -q '^step 1/2 | loss' drawn || fail "no line is drawn: $(cat -v screen)"
awk 'length > 39 { exit 1 }' drawn || fail "a drawn line breaks: $(cat drawn)"
in_terminal 80 NO_COLOR=1
grep -q '^PASS equal bits' screen || fail "NO_COLOR: $(cat -v screen)"
! grep -qF $'\033[3' screen || fail "colour with NO_COLOR: $(cat -v screen)"
in_terminal 80 TERM=dumb
! grep -q $'\033' screen || fail "a dumb terminal gets $(cat -v screen)"
grep -q '^step 1/2 ' screen || fail "a dumb terminal gets no progress"

[ "$failures" = 0 ]
