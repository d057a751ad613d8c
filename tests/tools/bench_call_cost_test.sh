#!/usr/bin/env bash
# bench_call_cost: a line for each case, from itself and its bare sibling; wrong
# usage, or no sibling, is one line and exit code 2. No time is judged.
. tests/tools/tool_test.sh tools/bench_call_cost

refuses "--turns" --turns 0
refuses "--nonsense" --nonsense

"$tool" --turns 1 >out 2>err || fail "exit code $?: $(cat err)"
[ "$(grep -cE '(ranks?), .* +[0-9]+ +[0-9]+ +-?[0-9]+ +[-+][0-9.]+ %$' out)" = 3 ] ||
  fail "not three cases: $(cat out)"

cp -L "$tool" alone
tool=$PWD/alone
refuses "expected it beside this program" --turns 1

[ "$failures" = 0 ]
