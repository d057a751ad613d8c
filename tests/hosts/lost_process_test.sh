#!/usr/bin/env bash
# A process is stopped or killed in the middle of an all-reduce: the others end
# in time with one line that names its rank, and nothing goes on running.
set -u
# shellcheck source=tests/hosts/hosts.sh
. tests/hosts/hosts.sh
enter_own_world "$0"
emulate=$PWD/tools/emulate
# shellcheck source=tests/hosts/long_job.sh
. tests/hosts/long_job.sh
cd "$TEST_TMPDIR" || exit 1

step "a stopped process: the others name its rank, and it ends once it goes on"
start_long_job 3
happens kill -STOP "${rank_pids[1]}"
expect_end 0 $late_s 'rank 1'
expect_end 2 $late_s 'rank 1'
happens kill -CONT "${rank_pids[1]}"
expect_end 1 $late_s "$served_the_store"
expect_nothing_runs "$emulate"
end_step

step "a killed process: the others name its rank"
start_long_job 3
happens kill -KILL "${rank_pids[1]}"
expect_end 0 $soon_s 'rank 1'
expect_end 2 $soon_s 'rank 1'
wait_rank 1 1
expect_nothing_runs "$emulate"
end_step

step "the store's process killed: the others say that it served the store"
start_long_job 3
happens kill -KILL "${rank_pids[0]}"
expect_end 1 $soon_s "$served_the_store"
expect_end 2 $soon_s "$served_the_store"
wait_rank 0 1
expect_nothing_runs "$emulate"
end_step

[ "$failures" = 0 ]
