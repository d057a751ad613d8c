"""Reads the project's documents: their commands, links and code."""

import os
import re

# What a reader would type.
_COMMAND = re.compile(
    r"^(?:bazel |\./|bazel-bin/|torchrun |mpirun |srun |(?:[A-Z_]+=\S+ )+\S)")
_PROMPT = re.compile(r"^(?:[\w ]*\$ )")
_FENCE = re.compile(r"^\s*```(\w*)\s*$")


def root():
    """The source tree: the documents name files that no test depends on.

    Bazel starts tests in a tree of links to it.
    """
    return os.path.dirname(os.path.realpath("README.md"))


def paths():
    """README.md and the pages of docs/, relative to the root."""
    pages = [os.path.join("docs", name) for name in os.listdir("docs")]
    return ["README.md"] + sorted(p for p in pages if p.endswith(".md"))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def split(text):
    """Returns the text outside fences, and (language, lines) of each fence."""
    outside, fences, fence = [], [], None
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence is None and mark:
            fence = (mark.group(1), [])
        elif fence is not None and mark:
            fences.append(fence)
            fence = None
        elif fence is not None:
            fence[1].append(line)
        else:
            outside.append(line)
    return "\n".join(outside), fences


def links(text):
    """The targets of [text](target), without #section; no web addresses."""
    outside, _ = split(text)
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", outside))
    return [t.split("#")[0] for t in targets
            if not re.match(r"[a-z]+:", t) and not t.startswith("#")]


def code(text, language):
    """The fenced blocks of a language, each as a list of lines."""
    _, fences = split(text)
    return [lines for name, lines in fences if name == language]


def commands(text):
    """What the text tells its reader to type, one by one, in its order.

    That is: lines indented by four, lines in fences, and `code` in a sentence,
    where they begin as a command does. A && B are two.
    """
    outside, fences = split(text)
    lines, sentences = [], []
    for line in outside.split("\n"):
        (lines if line.startswith("    ") else sentences).append(line)
    for _, fenced in fences:
        lines += fenced
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = [line.strip() for line in joined.split("\n")]
    found += [re.sub(r"\s+", " ", inline)
              for inline in re.findall(r"`([^`]+)`", "\n".join(sentences))]
    found = [_PROMPT.sub("", command) for command in found]
    return [part.strip() for command in found if _COMMAND.match(command)
            for part in command.split(" && ")]
