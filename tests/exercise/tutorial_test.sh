#!/usr/bin/env bash
# The code shown in docs/tutorial.md stands in the solution: the lines of each
# block in one of its files, in that order; "..." stands for others.
set -u
exec python3 - docs/tutorial.md tests/exercise/solution/*.{h,cc} <<'PYTHON'
import re
import sys

text = open(sys.argv[1], encoding="utf-8").read()
files = [open(path, encoding="utf-8").read() for path in sys.argv[2:]]


def occur_in(lines, file):
    rest = iter(file.splitlines())
    # `in` consumes `rest`.
    return all(line in rest for line in lines if line != "...")


blocks = re.findall(r"^```cpp\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
failures = [
    block for block in blocks
    if not any(occur_in(block.splitlines(), file) for file in files)
]
for block in failures:
    print("FAILED: not in the solution, in this order:\n" + block)
if len(blocks) < 5:
    sys.exit("FAILED: %d blocks of code found" % len(blocks))
if len(text.splitlines()) > 200:
    sys.exit("FAILED: more than 200 lines")
sys.exit(1 if failures else 0)
PYTHON
