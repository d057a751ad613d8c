#!/usr/bin/env bash
# bench_recompute: a line and a row for each policy, with the bytes of the
# closed form; wrong usage is one line and exit code 2; Ctrl-C leaves no half a
# file. No time is judged.
. tests/tools/bench_test.sh
. tests/tools/tool_test.sh tools/bench_recompute

refuses "--turns" --turns 0
refuses "--layers" --layers 0
refuses "--nonsense" --nonsense
refuses "cannot write --json" --json no/such/out.json

"$tool" --turns 2 --layers 2 --batch 1 --json r.json >out 2>err ||
  fail "exit code $?: $(cat err)"
[ "$(grep -cE '^[a-z0-9-]+( +-?[0-9.]+){7}$' out)" = 5 ] ||
  fail "not five lines: $(cat out)"
grep -q "^saved bytes are those of the closed form" out || fail "$(cat out)"
grep -q "^blocks alone" out || fail "$(cat out)"
fits out
says '[r["policy"] for r in rows] == ["none", "selective", "every-4", "every-2", "full"]' r.json
says 'all(0 < r["saved_bytes"] == r["formula_bytes"] <= r["peak_bytes"] for r in rows)' r.json
says 'all(0 < r["step_ms"]["low"] <= r["step_ms"]["median"] <= r["step_ms"]["high"] for r in rows)' r.json
says 'set(rows[0]["extra_percent"].values()) == {0} and rows[0]["model_extra_percent"] == 0' r.json
says 'j["turns"] == 2 and j["model"]["layers"] == 2 and j["blocks_alone"]["forward_ms"] > 0' r.json
says "round(rows[4]['step_ms']['median'], 1) == $(awk '/^full/ {print $2}' out)" r.json
says "rows[4]['saved_bytes'] == $(awk '/^full/ {print $7}' out)" r.json

interrupts "shows recomputation err" --turns 100000
says 'rows == [] and j["model"] is j["blocks_alone"] is None' i.json

echo "took $SECONDS s"
[ "$failures" = 0 ]
