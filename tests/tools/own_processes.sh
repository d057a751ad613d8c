# The tools' processes of a test, and waiting for what they do. Sourced once
# TEST_TMPDIR is the folder. They end with the test.

# Every process of this test inherits it.
export OWN_PROCESSES_MARK=$$-$RANDOM$RANDOM

# The process numbers of those that run or are stopped.
ours() {
  local environ dir
  while read -r environ; do
    dir=${environ%/environ}
    case $(readlink "$dir/exe") in
      */emulate | */run_checks | */report) echo "${dir#/proc/}" ;;
    esac
  done < <(grep -lzxF "OWN_PROCESSES_MARK=$OWN_PROCESSES_MARK" \
    /proc/[0-9]*/environ 2>/dev/null)
}

has_none() { [ -z "$(ours)" ]; }
has_ended() { ! kill -0 "$1" 2>/dev/null; }

end_ours() {
  local pids
  pids=$(ours)
  # shellcheck disable=SC2086
  [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
}
trap end_ours EXIT

# until_true SECONDS COMMAND...: polls; false when time is up.
until_true() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.05
  done
}
