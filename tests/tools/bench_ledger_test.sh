#!/usr/bin/env bash
# bench_ledger: a line and a row for an allocation and a step, or for one variant
# of the step; wrong usage is one line and exit code 2; Ctrl-C writes the rows
# that are done. No time is judged.
. tests/tools/bench_test.sh
. tests/tools/tool_test.sh tools/bench_ledger

refuses "--turns" --turns 0
refuses "--only" --only both
refuses "--nonsense" --nonsense
refuses "cannot write --json" --json no/such/out.json

"$tool" --turns 3 --json r.json >out 2>err || fail "exit code $?: $(cat err)"
[ "$(grep -cE '^(allocation, ns|forward and backward, ms) +[0-9.]+ +[0-9.]+ +[-+][0-9.]+ %( +[-+][0-9.]+){3} %$' out)" = 2 ] ||
  fail "not two lines: $(cat out)"
fits out
says '[r["what"] for r in rows] == ["allocation", "forward and backward"]' r.json
says 'all(r["turns"] == 3 for r in rows)' r.json
says 'all(0 < r["best_without_us"] <= r["median_without_us"] for r in rows)' r.json
says 'all(0 < r["best_with_us"] <= r["median_with_us"] for r in rows)' r.json
says 'all(r["more_percent"]["p25"] <= r["more_percent"]["p75"] for r in rows)' r.json
# Lines are in units of their own, JSON is not.
says "round(1e3 * rows[0]['best_with_us'], 2) == $(awk '/^allocation, / {print $4}' out)" r.json
says "round(rows[1]['best_with_us'] / 1e3, 2) == $(awk '/^forward/ {print $6}' out)" r.json

for variant in with without; do
  "$tool" --turns 2 --only $variant --json r.json >out 2>err ||
    fail "exit code $? for $variant: $(cat err)"
  grep -q "^forward and backward $variant the ledger" out || fail "$(cat out)"
  fits out
  says "len(rows) == 1 and rows[0]['median_${variant}_us'] > 0" r.json
  says 'rows[0]["more_percent"] is rows[0]["best_more_percent"] is None' r.json
done
says 'rows[0]["best_with_us"] is None' r.json

interrupts "shows allocation err" --turns 100000
says 'rows == []' i.json

echo "took $SECONDS s"
[ "$failures" = 0 ]
