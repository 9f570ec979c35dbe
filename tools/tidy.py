#!/usr/bin/env python3
"""Compiles our code with clang 14: src/ under clang-tidy (.clang-tidy), the rest for its errors.

    tools/tidy.py [build folder]      build/release by default; it needs compile_commands.json

Exit code 1 when a file has an error or a warning.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def ours(build):
    """(file, command) of each of our own sources that the build compiles."""
    seen = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["directory"], entry["file"]).resolve()
        if ROOT in path.parents and ROOT / "build" not in path.parents:
            seen[path] = entry
    return sorted(seen.items())


def syntax_command(entry):
    """The entry's command for clang, for its errors only: g++ has judged the warnings."""
    words = shlex.split(entry["command"])[1:]
    at = words.index("-o")
    del words[at:at + 2]
    return ["clang++-14", "-fsyntax-only", *words, "-w"]


def check(item):
    path, entry = item
    if ROOT / "src" in path.parents:
        command = ["clang-tidy-14", "--quiet", "-p", entry["build"], str(path)]
    else:
        command = syntax_command(entry)
    done = subprocess.run(command, cwd=entry["directory"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    said = re.sub(r"^\d+ warnings?.* generated\.\n", "", done.stdout, flags=re.MULTILINE)
    bad = done.returncode != 0 or "warning:" in said
    return f"{path.relative_to(ROOT)}:\n{said}" if bad else None


def main():
    build = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "release").resolve()
    if not (build / "compile_commands.json").exists():
        sys.exit(f"tidy.py: {build} has no compile_commands.json; configure a preset first")
    items = [(path, {**entry, "build": str(build)}) for path, entry in ours(build)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(check, items) if text]
    print("\n".join(complaints) or f"clang 14: {len(items)} files without a warning")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
