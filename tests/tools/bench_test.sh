# What the benches' tests share. Sourced before tool_test.sh, which goes on
# elsewhere.

# fits FILE: no line has more than 80 columns, but for what a launcher adds, and
# where a path stands, which may be long.
fits() {
  local wide
  wide=$(sed 's/^\[rank[0-9]*\]: //; /^DistributedDataParallel: /d' "$1" |
    grep -E '^.{81}') &&
    fail "wider than 80 columns: $wide"
}

# says EXPRESSION FILE: true of the JSON in it, which is `j` with its `rows`.
says() {
  python3 -c '
import json, sys
j = json.load(open(sys.argv[2]))
sys.exit(not eval(sys.argv[1], {"j": j, "rows": j["rows"]}))' "$1" "$2" ||
    fail "not $1: $(cat "$2")"
}

# shows WORDS FILE, has_file FILE, has_ended PID: to wait for.
shows() { grep -qF -- "$1" "$2"; }
has_file() { [ -e "$1" ]; }
has_ended() { ! kill -0 "$1" 2>/dev/null; }

# until_true COMMAND...: polls for a minute at most.
until_true() {
  local deadline=$((SECONDS + 60))
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.1
  done
}
is_ready_or_ended() { $1 || has_ended "$2"; }

# interrupts READY FLAGS...: SIGINT once the command READY succeeds. Exit code
# 130, JSON in i.json that says so, and nothing half-written.
interrupts() {
  local ready=$1 pid code
  shift
  : >err
  # In a job of its own, which bash does not have ignore SIGINT.
  set -m
  "$tool" --json i.json "$@" >out 2>err &
  pid=$!
  set +m
  until_true is_ready_or_ended "$ready" "$pid"
  $ready || fail "never '$ready' for $*: $(cat out err)"
  kill -INT "$pid"
  until_true has_ended "$pid" || {
    fail "still running a minute after SIGINT for $*: $(cat err)"
    kill -KILL "$pid"
  }
  wait "$pid"
  code=$?
  [ "$code" = 130 ] || fail "exit code $code after SIGINT for $*: $(cat err)"
  grep -q interrupted err || fail "not told: $(cat err)"
  says 'j["interrupted"] is True' i.json
  fits out
  [ -z "$(find . -name '*.unfinished')" ] || fail "half-written: $(ls)"
}
