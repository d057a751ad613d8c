#!/usr/bin/env bash
# soak_collectives: a short run is right and says what it did; wrong usage is one
# line and exit code 2; Ctrl-C ends it early with what it did.
. tests/tools/bench_test.sh
. tests/tools/tool_test.sh tools/soak_collectives

refuses "--ranks" --ranks 0
refuses "--channels" --channels 65
refuses "--seconds" --seconds 0
refuses "--seconds" --seconds soon
refuses "--seed" --seed x
refuses "--nonsense" --nonsense
refuses "cannot write --json" --json no/such/out.json

"$tool" --help >out 2>err || fail "--help"
grep -q Example out || fail "--help shows no example"

# is_right WORDS: the two lines of a run that found nothing wrong.
is_right() {
  [ "$(wc -l <out)" = 2 ] || fail "not two lines: $(cat out)"
  grep -qE "^all right: [1-9][0-9]* collectives with [0-9.]+ MiB in [0-9.]+ s$" out ||
    fail "not right: $(cat out)"
  grep -qx "$1" out || fail "no '$1': $(cat out)"
  fits out
}

# soaks WORDS FLAGS...: exit code 0, and right.
soaks() {
  local words=$1
  shift
  timeout 100 "$tool" --json r.json "$@" >out 2>err ||
    fail "exit code $? for $*: $(cat err)"
  is_right "$words"
  says 'len(rows) == 1 and rows[0]["passed"] and rows[0]["error"] is None' r.json
  says "rows[0]['collectives'] == $(grep -oE '[0-9]+ collectives' out | cut -d' ' -f1)" r.json
}

soaks "8 ranks, 4 channels, seed 7" --seconds 2 --seed 7
says 'rows[0]["seconds"] >= 2 and rows[0]["bytes"] > 0' r.json
soaks "3 ranks, 1 channels, seed 1" --seconds 1 --ranks 3 --channels 1
soaks "1 ranks, 2 channels, seed 1" --seconds 1 --ranks 1 --channels 2

interrupts "shows seconds err" --seconds 1000 --ranks 3
is_right "3 ranks, 4 channels, seed 1"
says '0 < rows[0]["seconds"] < 900 and rows[0]["passed"]' i.json

echo "took $SECONDS s"
[ "$failures" = 0 ]
