#!/usr/bin/env bash
# A link is cut in the middle of an all-reduce: every process ends in time with
# one line that names a rank, and nothing goes on running.
set -u
# shellcheck source=tests/hosts/hosts.sh
. tests/hosts/hosts.sh
enter_own_world "$0"
emulate=$PWD/tools/emulate
# shellcheck source=tests/hosts/long_job.sh
. tests/hosts/long_job.sh
cd "$TEST_TMPDIR" || exit 1

step "a link cut between two hosts: each names the other"
start_long_job 2
happens ip link set port2 down
expect_end 0 $late_s 'rank 1'
expect_end 1 $late_s "$served_the_store"
expect_nothing_runs "$emulate"
end_step

step "one of three hosts cut off: the others name its rank"
start_long_job 3
happens ip link set port3 down
expect_end 0 $late_s 'rank 2'
expect_end 1 $late_s 'rank 2'
expect_end 2 $late_s "$served_the_store"
expect_nothing_runs "$emulate"
end_step

[ "$failures" = 0 ]
