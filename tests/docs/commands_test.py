"""Runs what README.md and docs/ tell their readers to type.

`bazel run //tools:X -- ARGS` runs the built program with those ARGS, in a
folder of its own. Every other command is one of EXCEPTIONS, with the reason.
So a command that is new in a document runs, or fails this test.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import documents

DEADLINE_SECONDS = 240

# Commands that are not run here, and why.
EXCEPTIONS = {
    "./setup.sh": "installs packages; CI runs it",
    "bazel test //...": "CI runs it",
    "bazel test --config=asan //...": "CI runs it",
    "bazel test --config=tsan //...": "CI runs it",
    "bazel test //tests/protocols/...": "CI runs it as a part of //...",
    "bazel build //tools:emulate": "is built for this test",
    "bazel run //tools:run_checks -- --backend nccl": "takes four GPUs",
    "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 "
    "bazel-bin/tools/emulate": "takes two hosts; tests/hosts makes some",
    "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 "
    "bazel-bin/tools/emulate": "takes two hosts; tests/hosts makes some",
}

# Commands that say themselves how they end otherwise than well.
EXIT_CODES = {
    # The exercise's files do nothing yet.
    "bazel run //tools:run_checks -- --mine": 1,
    "bazel run //tools:run_checks -- --mine --break wait-in-hook": 1,
}

# Run to the end as they are; others of these tools are cut short below.
AS_TYPED = {
    "bazel run //tools:emulate -- --ranks 4",
}

# What is added for a tool that takes its time, unless the command says it.
SHORTER = {
    "bench_call_cost": ["--turns", "1"],
    "bench_collectives": ["--quick"],
    "bench_ledger": ["--turns", "1"],
    "bench_optimizer": ["--turns", "1"],
    "bench_recompute": ["--turns", "1"],
    "bench_step": ["--quick", "--turns", "1"],
    "emulate": ["--steps", "3"],
    "report": ["--quick"],
    "soak_collectives": ["--seconds", "2"],
}

# Launchers that a machine may lack.
LAUNCHERS = ("mpirun", "srun", "torchrun")


def all_commands():
    """Each once, with the first document that has it."""
    first = {}
    for path in documents.paths():
        for command in documents.commands(documents.read(path)):
            first.setdefault(command, path)
    return first


def program(name):
    path = os.path.abspath(os.path.join("tools", name))
    if not os.path.exists(path):
        sys.exit(f"FAILED: //tools:{name} is not in this test's data")
    return path


def argv_of(command):
    """The words to run; nothing for a command that this test does not know."""
    words = shlex.split(command)
    if words[:2] == ["bazel", "run"] and words[2].startswith("//tools:"):
        tool = words[2].removeprefix("//tools:")
        arguments = words[4:] if words[3:4] == ["--"] else words[3:]
        added = SHORTER.get(tool, [])
        if command in AS_TYPED or (added and added[0] in arguments):
            added = []
        return [program(tool)] + arguments + added
    if words[0] in LAUNCHERS:
        return [re.sub("^bazel-bin/tools/(.*)", lambda m: program(m.group(1)), w)
                for w in words]
    return []


def environment():
    ours = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **ours}


def run(argv):
    """Returns the exit code (None: past the deadline) and the output."""
    with tempfile.TemporaryDirectory() as folder, open(
            os.path.join(folder, "output"), "w+b") as output:
        work = os.path.join(folder, "work")
        os.mkdir(work)
        child = subprocess.Popen(argv, cwd=work, stdin=subprocess.DEVNULL,
                                 stdout=output, stderr=output,
                                 env=environment(), start_new_session=True)
        try:
            code = child.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(child.pid, signal.SIGKILL)  # whatever it has left behind
        except ProcessLookupError:
            pass
        child.wait()
        output.seek(0)
        return code, output.read().decode(errors="replace")


def fault_of(command):
    """What is wrong with a command, in words; nothing if all is well."""
    if command in EXCEPTIONS:
        print(f"not run: {command}: {EXCEPTIONS[command]}")
        return ""
    argv = argv_of(command)
    if not argv:
        return "neither runs here nor is one of EXCEPTIONS"
    if argv[0] in LAUNCHERS and not shutil.which(argv[0]):
        print(f"not run: {command}: {argv[0]} is not installed")
        return ""
    began = time.monotonic()
    code, output = run(argv)
    print(f"{time.monotonic() - began:6.1f} s  {command}", flush=True)
    expected = EXIT_CODES.get(command, 0)
    if code == expected:
        return ""
    how = "ran past the deadline" if code is None else f"exit code {code}"
    return f"{how}, expected {expected}:\n{output[-4000:]}"


def main():
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        open(os.environ["TEST_SHARD_STATUS_FILE"], "w").close()
    shards = int(os.environ.get("TEST_TOTAL_SHARDS", "1"))
    shard = int(os.environ.get("TEST_SHARD_INDEX", "0"))
    found = all_commands()
    faults = [f"{command}: no document has it any more"
              for listed in (EXCEPTIONS, EXIT_CODES, AS_TYPED)
              for command in listed if command not in found]
    for command in list(found)[shard::shards]:
        fault = fault_of(command)
        if fault:
            faults.append(f"{found[command]}: {command}: {fault}")
    for fault in faults:
        print(f"FAILED: {fault}")
    return 1 if faults or not found else 0


if __name__ == "__main__":
    sys.exit(main())
