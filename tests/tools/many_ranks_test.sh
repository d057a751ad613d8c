#!/usr/bin/env bash
# emulate trains and proves itself with many times more ranks than cores.
set -eu
out=$("$PWD/tools/emulate" --ranks 64 --steps 3 --batch 1 2>&1)
echo "$out"
[ "$(grep -c '^PASS' <<<"$out")" = 3 ]
