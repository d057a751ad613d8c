# A long job on several hosts, in the middle of which something happens.
# Sourced after hosts.sh, with "$emulate" set.
# shellcheck shell=bash
# What others set, and what they use:
# shellcheck disable=SC2154,SC2034

timeout_s=5
# A rank that waits for another gives up after the timeout, and asks the store
# why for 5 s at most. The rest is for a busy machine.
late_s=$((timeout_s + 5 + 4))
# A closed connection is noticed at once.
soon_s=9
served_the_store='rank 0 at 10.77.0.1:29500, which serves the store'

# start_long_job HOSTS: a rank on each, on a narrow network, so that they spend
# their time in all-reduces. Returns in the middle of one.
start_long_job() {
  local rank sent
  make_hosts "$1"
  for ((rank = 0; rank < $1; ++rank)); do
    on_host $((rank + 1)) tc qdisc add dev eth0 root tbf rate 50mbit \
      burst 32kb latency 50ms || die "cannot limit the rate of a host"
    start_rank "$rank" "$1" $((rank + 1)) "$emulate" --steps 1000000 --batch 1 \
      --timeout-s "$timeout_s"
  done
  await 40 has_trained_a_step || die "no step was done: $(cat err.0)"
  # A step sends more than 3 MB.
  sent=$(bytes_sent)
  await 10 has_sent $((sent + 1000000)) || die "the ranks do not talk"
}

has_trained_a_step() { grep -q '^step 1/' err.0; }
bytes_sent() { awk '$1 == "port1:" { print $2 }' /proc/net/dev; }
has_sent() { (($(bytes_sent) >= $1)); }

# happens COMMAND...: what the ranks are to notice.
happens() {
  happened_us=${EPOCHREALTIME/./}
  "$@" || die "cannot: $*"
}

# expect_end RANK SECONDS WORDS: the rank ends, that soon after what happened,
# in failure, and says so in one line with these words.
expect_end() {
  local code said us
  us=$((${EPOCHREALTIME/./} - happened_us))
  wait_rank "$1" $(($2 - us / 1000000))
  code=$?
  us=$((${EPOCHREALTIME/./} - happened_us))
  said=$(grep -v '^step ' "err.$1")
  echo "  after $((us / 1000000)) s rank $1 has said: $said"
  [ "$code" = 1 ] || fail "rank $1: exit code $code"
  [ "$(wc -l <<<"$said")" = 1 ] || fail "rank $1: more than one line"
  grep -q "$3" <<<"$said" || fail "rank $1: no '$3'"
}
