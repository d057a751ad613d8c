#!/usr/bin/env bash
# docs/json.md has every name that the tools write as JSON, and no other.
set -u
root=$PWD
cd "$TEST_TMPDIR" || exit 1
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# compares SECTIONS FILE...: whether those sections' names are the files'; says in
# `names` which are not.
compares() {
  python3 "$root/tests/docs/json_names.py" "$root/docs/json.md" "$@" >names 2>&1
}
names() { compares "$@" || fail "$(cat names)"; }

# writes FILE TOOL FLAGS...: the tool runs and writes it.
writes() {
  local file=$1 tool=$root/tools/$2
  shift 2
  timeout 100 "$tool" "$@" --json "$file" >out 2>err ||
    fail "exit code $? for $tool $*: $(cat err)"
}

# bench TOOL FLAGS...: writes TOOL.json with its names and every bench's.
bench() {
  writes "$1.json" "$@"
  names "Every bench,$1" "$1.json"
}

bench bench_collectives --budget-ms 1 --ranks 2 --bytes 4 --no-peers \
  --dtypes f32
bench bench_step --models tiny --turns 1 --ranks 2 --no-torch
bench bench_optimizer --elems 1000 --turns 1 --threads 1 --ranks 2
bench bench_ledger --turns 1
bench bench_call_cost --turns 1
bench bench_recompute --turns 1
bench soak_collectives --seconds 1 --ranks 2

writes none.json bench_ledger --turns 1 --only with
names "Every bench,bench_ledger" bench_ledger.json none.json

writes memory.json plan memory --model gpt2-xl --device-gb 1
names "plan memory" memory.json
writes shards.json plan shards --model gpt2 --ranks 3
names "plan shards" shards.json
writes emulate.json emulate --ranks 2 --steps 2 --batch 1
names emulate emulate.json
writes run_checks.json run_checks
names run_checks run_checks.json

# The report's names are held in its own test.

# notices WORDS PYTHON: that line, once PYTHON has changed `j`, plan's shards.
notices() {
  python3 -c "import json
j = json.load(open('shards.json'))
$2
json.dump(j, open('wrong.json', 'w'))"
  ! compares "plan shards" wrong.json || fail "unnoticed: $1"
  grep -qxF "plan shards: $1" names || fail "no '$1': $(cat names)"
}

notices "not documented: colour" "j['colour'] = 1"
notices "not documented: shards[].colour" "j['shards'][2]['colour'] = 1"
notices "null, and not documented as that: tensors" "j['tensors'] = None"
notices "documented, but not written: imbalance" "del j['imbalance']"

echo "took $SECONDS s"
[ "$failures" = 0 ]
