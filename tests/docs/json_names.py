"""Holds a JSON file's names against a section of docs/json.md.

json_names.py DOCUMENT SECTION[,SECTION...] FILE...: prints what is written but
not documented, documented but in no file, or null without a word; exit code 1
if there is any.
"""
import json
import re
import sys


def expand(name):
    """a{b,c}d -> abd, acd."""
    match = re.search(r"\{([^{}]*)\}", name)
    if not match:
        return [name]
    return [n for part in match[1].split(",")
            for n in expand(name[:match.start()] + part + name[match.end():])]


def documented(text, section):
    """Name -> whether it may be null, of the section's table."""
    body = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text,
                     re.M | re.S)
    if not body:
        sys.exit(f"no section '{section}'")
    names = {}
    for line in body[1].splitlines():
        if not line.startswith("| `"):
            continue
        cells = [cell.strip() for cell in line.strip("|\n").split("|")]
        for quoted in re.findall(r"`([^`]+)`", cells[0]):
            names.update({n: bool(cells[2]) for n in expand(quoted)})
    return names


def nodes(value, path=""):
    """Every path in a JSON value, with the value there."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from nodes(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, (dict, list)):
                yield from nodes(item, path + "[]")


def matcher(name):
    return re.compile(re.escape(name).replace(r"\*", "[^.]+")).fullmatch


def is_above(path, name):
    """Whether `path` is an object or list that holds `name`."""
    parts = re.split(r"(?=[.\[])", name)
    return any(matcher("".join(parts[:i]))(path) for i in range(1, len(parts)))


def complaints(names, files):
    seen = {}
    for file in files:
        with open(file) as text:
            for path, value in nodes(json.load(text)):
                seen.setdefault(path, []).append(value)
    for path, values in seen.items():
        exact = [n for n in names if matcher(n)(path)]
        above = [n for n in names if is_above(path, n)]
        if not exact and not above:
            yield f"not documented: {path}"
        elif None in values and not any(names[n] for n in exact + above):
            yield f"null, and not documented as that: {path}"
    nulls = [path for path, values in seen.items() if None in values]
    for name in names:
        is_written = any(matcher(name)(path) for path in seen)
        if not is_written and not any(is_above(path, name) for path in nulls):
            yield f"documented, but not written: {name}"


def main():
    with open(sys.argv[1]) as text:
        document = text.read()
    names = {}
    for section in sys.argv[2].split(","):
        names.update(documented(document, section))
    found = list(complaints(names, sys.argv[3:]))
    for line in found:
        print(f"{sys.argv[2]}: {line}")
    sys.exit(1 if found else 0)


main()
