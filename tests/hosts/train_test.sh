#!/usr/bin/env bash
# Training over several hosts gives the bits that threads give, on a fast, a
# narrow and a slow network.
set -u
# shellcheck source=tests/hosts/hosts.sh
. tests/hosts/hosts.sh
enter_own_world "$0"
emulate=$PWD/tools/emulate
delay_link=$PWD/tests/hosts/delay_link
cd "$TEST_TMPDIR" || exit 1
job=("$emulate" --steps 2 --batch 1)

# hash_in FILE: the parameters' hash that emulate has printed.
hash_in() { sed -n 's/^parameter hash \([0-9a-f]*\),.*/\1/p' "$1"; }

# expect_same_bits HOST...: ranks 0, 1, ... on these hosts train as threads do.
expect_same_bits() {
  local hosts=("$@") rank expected
  expected=$(threads_hash $#)
  for rank in "${!hosts[@]}"; do
    start_rank "$rank" $# "${hosts[rank]}" "${job[@]}"
  done
  for rank in "${!hosts[@]}"; do
    wait_rank "$rank" 60 ||
      fail "rank $rank: exit code $?: $(cat "err.$rank")"
  done
  [ "$(hash_in out.0)" = "$expected" ] || fail "not $expected: $(cat out.0)"
  [ "$(grep -c ^PASS out.0)" = 3 ] || fail "not proved: $(cat out.0)"
  expect_nothing_runs "$emulate"
}

# threads_hash RANKS: of as many threads of one process.
threads_hash() {
  [ -e "threads.$1" ] ||
    "${job[@]}" --backend threads --ranks "$1" >"threads.$1" 2>err ||
    fail "$1 threads: $(cat err)"
  hash_in "threads.$1"
}

step "two hosts train as two threads"
make_hosts 2
expect_same_bits 1 2
end_step

step "three hosts train as three threads"
make_hosts 3
expect_same_bits 1 2 3
end_step

step "two hosts with two ranks each train as four threads"
make_hosts 2
expect_same_bits 1 1 2 2
end_step

step "a network of 100 Mbit/s changes no bit"
make_hosts 2
for host in 1 2; do
  on_host $host tc qdisc add dev eth0 root tbf rate 100mbit burst 32kb \
    latency 50ms || die "cannot limit the rate of host $host"
done
expect_same_bits 1 2
on_host 1 tc -s qdisc show dev eth0 | grep -q 'overlimits [1-9]' ||
  fail "the limit has held nothing back"
end_step

# delay_hosts MILLISECONDS: between hosts 1 and 2, each way.
delay_hosts() {
  local host line
  coproc LINK { exec "$delay_link" "${host_pids[1]}" "${host_pids[2]}" "$1"; }
  read -r -t 10 line <&"${LINK[0]}" && [ "$line" = ready ] || return 1
  subnet=10.77.1
  for host in 1 2; do
    on_host $host ip address add $subnet.$host/24 dev delay0 &&
      on_host $host ip link set delay0 mtu 9000 up || return 1
  done
}

step "a network with a delay of 20 ms changes no bit"
make_hosts 2
if delay_hosts 20; then
  expect_same_bits 1 2
  echo end >&"${LINK[1]}"
  read -r -t 10 _ carried _ <&"${LINK[0]}"
  ((${carried:-0} > 1000)) || fail "${carried:-no} packets over the slow link"
else
  die "cannot delay a link"
fi
end_step

[ "$failures" = 0 ]
