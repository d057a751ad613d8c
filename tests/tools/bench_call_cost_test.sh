#!/usr/bin/env bash
# bench_call_cost: a line and a row for each case, from the two builds beside it;
# wrong usage, or a build that is not there, is one line and exit code 2; Ctrl-C
# leaves the turns that there are. No time is judged.
. tests/tools/bench_test.sh
. tests/tools/tool_test.sh tools/bench_call_cost

refuses "--turns" --turns 0
refuses "--nonsense" --nonsense
refuses "cannot write --json" --json no/such/out.json

"$tool" --turns 1 --json r.json >out 2>err || fail "exit code $?: $(cat err)"
[ "$(grep -cE '(ranks?), .* +[0-9]+ +[0-9]+ +-?[0-9]+ +[-+][0-9.]+ %$' out)" = 3 ] ||
  fail "not three cases: $(cat out)"
fits out
says '[(r["ranks"], r["bytes"]) for r in rows] == [(1, 4), (2, 4), (2, 16384)]' r.json
says 'all(abs(r["whole_ns"] - r["bare_ns"] - r["added_ns"]) < 1e-6 for r in rows)' r.json
says 'all(r["turns"] == 1 and r["bare_ns"] > 0 for r in rows)' r.json
says 'not j["interrupted"]' r.json

interrupts "shows turns err" --turns 1000
says 'len(rows) == 3 and 0 < rows[0]["turns"] < 1000' i.json

cp -L "$tool" alone
tool=$PWD/alone
refuses "expected it beside this program" --turns 1

echo "took $SECONDS s"
[ "$failures" = 0 ]
