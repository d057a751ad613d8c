#!/usr/bin/env bash
# bench_optimizer: a line and a row for each number of threads and of ranks,
# every figure of it a number; wrong usage is one line and exit code 2; Ctrl-C
# writes the rows that are done. No time is judged.
. tests/tools/bench_test.sh
. tests/tools/tool_test.sh tools/bench_optimizer
bench=$tool

# row COUNT PATTERN: so many lines are that.
row() {
  local found
  found=$(grep -cE "^$2\$" out)
  [ "$found" = "$1" ] || fail "$found lines of $2, expected $1: $(cat out)"
}

refuses "--elems" --elems 0
refuses "--tensors" --tensors none
refuses "--threads" --threads 0
refuses "--ranks" --ranks 1,0
refuses "--turns" --turns 0
refuses "--nonsense" --nonsense
refuses "cannot write --json" --json no/such/out.json

"$bench" --help >out 2>err || fail "--help"
grep -qF Example out || fail "no example: $(cat out)"

ms=' +[0-9]+\.[0-9]+' ratio=' +[0-9.]+ [0-9.]+ [0-9.]+'
# More ranks and more tensors than some have elements.
for elems in 40000 2; do
  timeout 50 "$bench" --elems $elems --tensors 7 --turns 3 --threads 1,3 \
    --ranks 2,3 --json r.json >out 2>err ||
    fail "exit code $? for $elems: $(cat err)"
  fits out
  ! grep -qE 'nan|inf' out || fail "not a number: $(cat out)"
  grep -qF "$elems f32 parameters in 7 tensors; 3 turns" out || fail "header"
  for threads in 1 3; do
    row 1 "$threads$ms$ms$ms$ratio$ratio"      # floor, fused, torch
  done
  row 3 "[13]$ms$ms$ms$ratio"                  # norm, and 3 ranks
  row 1 "2$ms$ms$ms$ratio"
  says '[r["part"] for r in rows] == ["update"] * 2 + ["norm"] * 2 + ["zero1"] * 2' r.json
  says '[r["threads"] for r in rows[:4]] == [1, 3, 1, 3]' r.json
  says '[r["ranks"] for r in rows[4:]] == [2, 3]' r.json
  says "all((r['elems'], r['tensors'], r['turns']) == ($elems, 7, 3) for r in rows)" r.json
  says 'all(v is not None for r in rows for v in r.values())' r.json
  says 'not j["interrupted"]' r.json
done

# In the middle of the ranks' turns.
ranks=$(printf '2,%.0s' {1..300})2
interrupts "shows ZeRO-1 err" --elems 20000 --tensors 3 --turns 2000 \
  --threads 1 --ranks "$ranks"
says '3 <= len(rows) < 303 and rows[2]["part"] == "zero1"' i.json

echo "took $SECONDS s"
[ "$failures" = 0 ]
