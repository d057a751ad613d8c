# Hosts made of network namespaces, for tests that source this file.
#
#   . tests/hosts/hosts.sh     # from the runfiles
#   enter_own_world "$0"
#   make_hosts 3
#   start_rank 0 3 1 "$emulate" --steps 2
#
# Host h (1, 2, ...) is a namespace with the address 10.77.0.h on "eth0", whose
# other end, "port<h>", hangs on a bridge in the test's own namespace. The test
# runs in namespaces of its own, for processes as well: so names are free, and
# whatever ends the test, SIGKILL included, ends all that it has started; the
# kernel takes the rest away.
# shellcheck shell=bash
set -u
export LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
failures=0

fail() {
  echo "FAILED: ${step_name:+$step_name: }$*"
  failures=$((failures + 1))
}

# What cannot go on ends the test.
die() {
  fail "$*"
  exit 1
}

# Runs the script again where it can make hosts; returns there.
enter_own_world() {
  local tool
  [ -z "${TRAINSYS_OWN_WORLD:-}" ] || {
    trap 'exit 143' TERM INT # the first process of a world ignores them else
    ip link set lo up
    return 0
  }
  [ "$(id -u)" = 0 ] || {
    echo "needs root, to make hosts of network namespaces: nothing was tested"
    exit 0
  }
  for tool in ip tc unshare nsenter; do
    command -v "$tool" >/dev/null && continue
    die "there is no '$tool'; ./setup.sh installs it"
  done
  # Propagation is left as it is, because in a chroot / is no mount; /proc's is
  # made private all the same.
  local world=(unshare --net --mount --propagation unchanged
    --pid --fork --kill-child --mount-proc)
  "${world[@]}" true || die "this system lets not even root make namespaces"
  TRAINSYS_OWN_WORLD=1 exec "${world[@]}" "$BASH" "$1"
}

# step NAME: what follows is a step of the test, until end_step.
step() {
  step_name=$*
  step_failures=$failures
  step_began_us=${EPOCHREALTIME/./}
}

end_step() {
  local us=$((${EPOCHREALTIME/./} - step_began_us)) verdict=ok
  [ "$failures" = "$step_failures" ] || verdict=FAILED
  printf '%-6s %s (%d.%d s)\n' "$verdict" "$step_name" \
    $((us / 1000000)) $((us / 100000 % 10))
  step_name=
}

# make_hosts NUMBER: as many new hosts, without those before.
make_hosts() {
  local host
  remove_hosts
  ip link add bridge0 up type bridge || die "cannot make a bridge"
  for ((host = 1; host <= $1; ++host)); do
    make_host "$host" || die "cannot make host $host"
  done
  subnet=10.77.0
}

make_host() {
  local pid
  unshare --net sleep infinity &
  pid=$!
  disown # and no word about its end
  host_pids[$1]=$pid
  await 10 has_own_network "$pid" &&
    ip link add "port$1" type veth peer name eth0 netns "$pid" &&
    ip link set "port$1" master bridge0 up &&
    on_host "$1" ip link set lo up &&
    on_host "$1" ip address add "10.77.0.$1/24" dev eth0 &&
    on_host "$1" ip link set eth0 up
}

remove_hosts() {
  local host
  # With its last process a namespace and its links would go, but not at once.
  for host in "${!host_pids[@]}"; do
    ip link del "port$host"
    kill -KILL "${host_pids[host]}"
  done
  host_pids=()
  ! ip link show bridge0 >/dev/null 2>&1 || ip link del bridge0
}
host_pids=()

has_own_network() {
  [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]
}

# on_host HOST COMMAND...: the command's exit code.
on_host() {
  nsenter -t "${host_pids[$1]}" -n "${@:2}"
}

# await SECONDS COMMAND...: runs it until it succeeds; fails if time is up.
await() {
  local until_us=$((${EPOCHREALTIME/./} + $1 * 1000000))
  shift
  until "$@"; do
    ((${EPOCHREALTIME/./} < until_us)) || return 1
    sleep 0.1
  done
}

# start_rank RANK RANKS HOST COMMAND...: in the background; its output goes to
# the files out.RANK and err.RANK. Rank 0 is on host 1. Ranks of one host are
# numbered in the order of their starts.
start_rank() {
  local rank=$1 ranks=$2 host=$3 local_rank=0 other
  shift 3
  for other in "${!rank_pids[@]}"; do
    [ "${rank_hosts[other]}" != "$host" ] || local_rank=$((local_rank + 1))
  done
  rank_hosts[rank]=$host
  # The shell becomes nsenter, which becomes the command: one id.
  RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$local_rank \
    MASTER_ADDR=$subnet.1 MASTER_PORT=29500 \
    nsenter -t "${host_pids[host]}" -n "$@" >"out.$rank" 2>"err.$rank" &
  rank_pids[rank]=$!
}
rank_pids=()
rank_hosts=()

# wait_rank RANK SECONDS: its exit code; one that does not end is an error and
# is killed.
wait_rank() {
  local pid=${rank_pids[$1]}
  await "$2" has_ended "$pid" || {
    fail "rank $1 has not ended after $2 s: $(cat "err.$1")"
    kill -KILL "$pid"
  }
  unset "rank_pids[$1]" "rank_hosts[$1]"
  wait "$pid" 2>/dev/null
}

has_ended() { ! kill -0 "$1" 2>/dev/null; }

# expect_nothing_runs PROGRAM: no process of it is left on any host. All that
# this test has started is in its /proc.
expect_nothing_runs() {
  local exe
  for exe in /proc/[0-9]*/exe; do
    [ "$(readlink "$exe")" != "$(readlink -f "$1")" ] ||
      fail "still running: $(tr '\0' ' ' <"${exe%exe}cmdline")"
  done
}
