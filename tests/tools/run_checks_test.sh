#!/usr/bin/env bash
# run_checks: all four pass; each planted fault makes the right line fail; the
# exercise as delivered fails all of them, and says what to do.
set -u
run_checks=$PWD/tools/run_checks
cd "$TEST_TMPDIR" || exit 1
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# is_neat: what was printed fits the terminal, under four heads of a check.
is_neat() {
  ! grep -qE '.{81}' out || fail "more than 80 columns: $(cat out)"
  [ "$(grep -cE '^(PASS|FAIL) [1-4] ' out)" = 4 ] || fail "heads: $(cat out)"
  grep -vqE '^((PASS|FAIL) [1-4] |     [^ ]|[0-4] / 4 checks passed$)' out &&
    fail "other lines: $(cat out)"
  return 0
}

# holds PROGRAM: what python3 says of `checks`, the JSON in checks.json.
holds() {
  python3 -c "import json; checks = json.load(open('checks.json'))['checks']
assert $1, checks" || fail "not so: $1"
}

"$run_checks" --json checks.json >out || fail "exit code $?"
is_neat
[ "$(grep -c '^PASS' out)" = 4 ] || fail "$(cat out)"
[ "$(tail -n 1 out)" = "4 / 4 checks passed" ] || fail "$(cat out)"
holds "[c['check'] for c in checks] == [1, 2, 3, 4]"
holds "all(c['passed'] for c in checks)"
holds "checks[0]['figures']['buckets'] == 5"
holds "checks[1]['figures']['state_bytes_unsharded'] == 306240"
holds "checks[2]['figures']['saved_raw_bytes_plain'] == 10813440"
holds "0 < checks[3]['figures']['difference'] <= 1e-4"
[ "$(grep -c '' out)" = "$(python3 -c "import json
print(sum(1 + len(c['lines']) for c in json.load(open('checks.json'))['checks']) + 1)")" ] ||
  fail "other lines in the JSON than printed"

# notices FAULT LINE FLAGS...: that line fails, and the exit code is 1.
notices() {
  local fault=$1 line=$2 code
  shift 2
  "$run_checks" --break "$fault" "$@" >out
  code=$?
  [ "$code" = 1 ] || fail "exit code $code with $fault"
  grep -q "^FAIL $line " out || fail "$fault went unnoticed: $(cat out)"
  is_neat
}

notices no-average 1
notices missing-all-gather 2
notices launch-at-end 1
notices params-saved 3
notices wait-in-hook 1

"$run_checks" --break nothing 2>/dev/null
[ $? = 2 ] || fail "an unknown fault is not refused"
"$run_checks" --mine --break params-saved 2>err
[ $? = 2 ] || fail "a fault in what is not checked is not refused"
grep -q -- '--mine' err || fail "$(cat err)"
"$run_checks" --json /no/such/folder/file 2>/dev/null
[ $? = 2 ] || fail "a file that cannot be written is not refused"

# tells LINE WORDS: check LINE has failed with these words, and says where to
# read on.
tells() {
  sed -n "/^FAIL $1 my /,/^ *read docs\/tutorial.md, $1$/p" out |
    tr -s '\n ' ' ' >told
  grep -qF -- "$2" told || fail "check $1 does not say '$2': $(cat told)"
  grep -qF ' expected: ' told || fail "check $1 expects nothing: $(cat told)"
}

"$run_checks" --mine --json checks.json >out
[ $? = 1 ] || fail "the empty exercise does not fail"
is_neat
[ "$(tail -n 1 out)" = "0 / 4 checks passed" ] || fail "$(cat out)"
tells 1 "rank 1 starts with other parameters than rank 0, up to 0."
tells 2 "step 1: the optimizer changed no parameter"
tells 3 "10813440 of 10813440 bytes raw were saved for backward"
tells 4 "rank 1 starts with other parameters than rank 0"
holds "not any(c['passed'] for c in checks)"
holds "checks[0]['lines'][-1] == 'read docs/tutorial.md, 1'"

[ "$failures" = 0 ]
