#!/usr/bin/env bash
# report writes a page, its JSON and traces; the page's figures are the JSON's,
# and the JSON's are those of the tools by hand. No time is judged.
. tests/tools/tool_test.sh tools/report
report=$tool
root=${report%/tools/report}

refuses "--out is required" --quick
refuses "is no folder" --out "$report"
refuses "is empty" --out ""
refuses "--seed: is -1" --out page --seed -1
refuses "--nonsense" --out page --nonsense
[ ! -e page ] || fail "a refused run made its folder"

timeout 280 "$report" --out a/page --quick >out 2>err ||
  fail "exit code $?: $(cat err)"
[ "$(wc -l <out)" = 2 ] || fail "not a headline and a path: $(cat out)"
for file in report.html report.md report.json trace/rank{0,1,2,3}.pt.trace.json; do
  [ -s "a/page/$file" ] || fail "no $file"
done
[ "$(find a/page -type f | wc -l)" = 7 ] || fail "other files: $(find a/page)"

python3 "$root/tests/report/page_numbers.py" a/page/report.html \
  a/page/report.json || fail "the page's figures are not the JSON's"
python3 "$root/tests/docs/json_names.py" "$root/docs/json.md" report \
  a/page/report.json || fail "docs/json.md has other names"

# The same job by hand, and the same policies.
"$root/tools/emulate" --ranks 4 --zero 2 --recompute full --steps 3 \
  --json emulate.json >out 2>err || fail "emulate: $(cat err)"
"$root/tools/bench_recompute" --turns 1 --json recompute.json >out 2>err ||
  fail "bench_recompute: $(cat err)"
python3 - <<'END' || fail "the report's figures are not those by hand"
import json
report, emulate, recompute = (json.load(open(f)) for f in (
    "a/page/report.json", "emulate.json", "recompute.json"))
case, = (c for c in report["memory"]["cases"]
         if (c["ranks"], c["zero"], c["recompute"]) == (4, 2, "full"))
rank = emulate["ranks"][0]
assert case["parameter_hash"] == rank["parameter_hash"], case
assert case["peak_bytes"] == rank["memory"]["peak_bytes"], case
for side in ("budget_bytes", "ledger_bytes"):
    for point, split in rank["memory"][side].items():
        ours = case[side][point.replace(" ", "_")]
        for category, size in split.items():
            assert ours[category.replace(" ", "_")] == size, (point, category)
by_hand = {row["policy"]: row for row in recompute["rows"]}
assert len(by_hand) == len(report["recompute"]["costs"]) == 5
for cost in report["recompute"]["costs"]:
    row = by_hand[cost["policy"]]
    for name in ("saved_bytes", "formula_bytes", "peak_bytes",
                 "model_extra_percent"):
        assert cost[name] == row[name], (cost["policy"], name)
END

echo "took $SECONDS s"
[ "$failures" = 0 ]
