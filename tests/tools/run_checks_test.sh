#!/usr/bin/env bash
# run_checks: all four pass; each planted fault makes the right line fail.
set -u
run_checks=$PWD/tools/run_checks
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

out=$("$run_checks") || fail "exit code $?"
[ "$(grep -c '^PASS' <<<"$out")" = 4 ] || fail "$out"
[ "$(tail -n 1 <<<"$out")" = "4 / 4 checks passed" ] || fail "$out"

# notices FAULT LINE: that line fails, and the exit code is 1.
notices() {
  local code
  out=$("$run_checks" --break "$1")
  code=$?
  [ "$code" = 1 ] || fail "exit code $code with $1"
  grep -q "^FAIL $2 " <<<"$out" || fail "$1 went unnoticed: $out"
}

notices no-average 1
notices missing-all-gather 2
notices launch-at-end 1
notices params-saved 3
notices wait-in-hook 1

"$run_checks" --break nothing 2>/dev/null
[ $? = 2 ] || fail "an unknown fault is not refused"

[ "$failures" = 0 ]
