#!/usr/bin/env bash
# bench_step: a row for each model and number of ranks, every figure of it a
# finite number, torch's too where it is there; a torch that is missing, or that
# fails at any point, is a dash and one line; wrong usage is one line and exit
# code 2; Ctrl-C writes the turns that there are. No time is judged.
. tests/tools/bench_test.sh
. tests/tools/tool_test.sh tools/bench_step
bench=$tool

# runs FLAGS...: exit code 0, 80 columns, rows in r.json.
runs() {
  rm -f r.json
  timeout 100 "$bench" --models tiny --turns 2 --json r.json "$@" >out 2>err ||
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

# prints WORDS: stdout has them.
prints() {
  grep -qF -- "$1" out || fail "no '$1': $(cat out)"
}

# table PATTERN: two rows of the table end so.
table() {
  local ideal=' +[0-9.]+' rung=' +[0-9]+\.[0-9] +[0-9]+\.[0-9]+' found
  prints "model tiny: 4760 parameters"
  found=$(grep -cE "^tiny +[23]$ideal($rung){3} +$1$" out)
  [ "$found" = 2 ] || fail "$found rows of two: $(cat out)"
}

# fake_python LINES: a python3 that has torch, and those lines to be a rank.
fake_python() {
  { echo '#!/bin/sh'; echo '[ "$1" = -c ] && { echo 9.8.7; exit; }'; cat; } \
    >python
  chmod +x python
}

refuses "--models is 'huge'" --models huge
refuses "--ranks" --ranks 0
refuses "--turns" --turns 0
refuses "--turns" --turns many
refuses "--bucket-kb" --bucket-kb 0
refuses "cannot write --json" --json no/such/out.json
refuses "--nonsense" --nonsense

"$bench" --help >out 2>err || fail "--help"
prints Example

# Every figure is a number: what is not finite is null in JSON.
runs --ranks 2,3 --no-torch
table '- +-'
expect 2 '"model": "tiny"'
expect 1 '"ranks": 2,'
expect 1 '"ranks": 3,'
expect 2 '"ideal_ms": [0-9.e-]+,$'
expect 6 '"(simple|async|bucketed)_ms": [0-9.e-]+,$'
expect 6 '"(simple|async|bucketed)_over_ideal": \{'
expect 7 '"median": -?[0-9.e-]+,$'
expect 2 '"torch_ms": null'
expect 4 'null'
for figure in empty_hook_us_per_parameter backward_us_per_parameter \
  step_us_per_parameter record_ns recorder_percent; do
  expect 1 "\"$figure\": -?[0-9.e-]+,?$"
done
# One bucket, and what the ranks tell each other at the end.
expect 1 '"records_per_step": 2,'

# One that answers as torch_ddp.py does. From the first rank's begin to the last
# one's end it is 10 ms for two ranks and 11 for three.
fake_python <<'END'
grep -q DistributedDataParallel "$1" || exit 1
echo "ready 4760"
while read -r line; do echo "$((1 + $3))000000 $((10 + $3))000000"; done
END
cp python echo
runs --ranks 2,3 --python "$PWD/python"
prints 'torch 9.8.7'
table '1[01]\.0 +[0-9]+\.[0-9]+'
expect 1 '"torch_ms": 10.0,'
expect 1 '"torch_ms": 11.0,'
expect 2 '"torch_over_bucketed": \{'
expect 0 null

# What can go wrong with it.
fake_python <<'END'
echo no such thing >&2
exit 3
END
runs --ranks 2,3 --python "$PWD/python"
table '- +-'
prints 'torch, tiny, 2 ranks: rank 0: it has ended: no such thing'

fake_python <<'END'
echo "ready 4761"
read -r line
END
runs --ranks 2,3 --python "$PWD/python"
table '- +-'
prints "rank 0 says 'ready 4761', expected 'ready 4760' parameters"

# In the middle of a step, and of another.
fake_python <<'END'
echo "ready 4760"
read -r line
echo "1 2"
while read -r line && [ "$3" != 1 ]; do echo "1 2"; done
echo gone >&2
END
runs --ranks 2,3 --python "$PWD/python"
table '- +-'
prints 'torch, tiny, 3 ranks: rank 1: it has ended: gone'

runs --ranks 2,3 --python "$PWD/none"
table '- +-'
prints 'not installed'

# The real one, where it is.
if python3 -c 'import torch' 2>err || /usr/bin/python3 -c 'import torch' 2>err; then
  runs --ranks 2,3
  table '[0-9]+\.[0-9] +[0-9]+\.[0-9]+'
  expect 0 null
else
  echo "not run: no python3 with torch"
fi

# Ctrl-C.
interrupts "shows tiny, err" --models tiny --turns 100000 --ranks 2,3 \
  --python "$PWD/echo"
says 'len(rows) == 1 and 0 < rows[0]["turns"] < 100000' i.json
says 'j["bookkeeping"] is None and rows[0]["torch_ms"] == 10' i.json

echo "took $SECONDS s"
[ "$failures" = 0 ]
