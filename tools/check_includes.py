#!/usr/bin/env python3
"""Holds the rooms to the table in docs/architecture.md: a folder of src/ includes only what it knows.

ggml's headers are for the rooms that hold tensors or read GGUF files. Prints each breach as
file:line: sentence; exit code 1 when there is one.
"""

import re
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"

KNOWS = {
    "base": [],
    "cells": ["base"],
    "memory": ["cells"],
    "attention": ["memory"],
    "state": ["memory"],
    "prefix": ["memory"],
    "tiers": ["state", "prefix"],
    "gguf": ["base"],
    "text": ["gguf"],
    "model": ["gguf", "memory", "attention"],
    "engine": ["model", "text", "prefix", "state"],
    "server": ["engine"],
    "cli": ["engine"],
}
MEET_GGML = {"memory", "attention", "gguf", "model"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
GGML = re.compile(r"^(ggml[\w-]*|gguf)\.h(pp)?$")


def reach(room):
    """The room, what it knows, and what those know."""
    rooms = {room}
    for known in KNOWS[room]:
        rooms |= reach(known)
    return rooms


def breach(room, quote, target):
    """Why this room may not include `target`, or None."""
    if GGML.match(target):
        return None if room in MEET_GGML else f"{room} may not meet ggml ({target})"
    folder, slash, _ = target.partition("/")
    if slash and folder in KNOWS:
        return None if folder in reach(room) else f"{room} does not know {folder} ({target})"
    if quote == '"' and folder != "cellar":
        return f'"{target}" is no room\'s header; ours are written "room/file.h", others <file.h>'
    return None


def check(path):
    room = path.relative_to(SRC).parts[0]
    if room not in KNOWS:
        yield f"{path.relative_to(SRC.parent)}:1: {room} is no room of the table"
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        reason = match and breach(room, *match.groups())
        if reason:
            yield f"{path.relative_to(SRC.parent)}:{number}: {reason}"


def main():
    files = sorted(path for path in SRC.rglob("*") if path.suffix in {".h", ".cpp"})
    breaches = [line for path in files for line in check(path)]
    print("\n".join(breaches) or f"includes: {len(files)} files keep to their rooms")
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
