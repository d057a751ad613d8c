#!/usr/bin/env bash
# soak_collectives: a short run is right and says what it did; wrong usage is one
# line and exit code 2.
. tests/tools/tool_test.sh tools/soak_collectives

refuses "--ranks" --ranks 0
refuses "--channels" --channels 65
refuses "--seconds" --seconds 0
refuses "--seconds" --seconds soon
refuses "--seed" --seed x
refuses "--nonsense" --nonsense

"$tool" --help >out 2>err || fail "--help"
grep -q Example out || fail "--help shows no example"

# soaks WORDS FLAGS...: exit code 0, one line on stdout with WORDS.
soaks() {
  local words=$1
  shift
  timeout 100 "$tool" "$@" >out 2>err || fail "exit code $? for $*: $(cat err)"
  [ "$(wc -l <out)" = 1 ] || fail "not one line for $*: $(cat out)"
  grep -qE "[1-9][0-9]* collectives, .* all right \($words\)" out ||
    fail "no '$words' for $*: $(cat out)"
}

soaks "8 ranks, 4 channels, seed 7" --seconds 2 --seed 7
soaks "3 ranks, 1 channels, seed 1" --seconds 1 --ranks 3 --channels 1
soaks "1 ranks, 2 channels, seed 1" --seconds 1 --ranks 1 --channels 2

echo "took $SECONDS s"
[ "$failures" = 0 ]
