#!/usr/bin/env python3
"""Prints the ten longest files and the ten longest functions of our code: to be seen, not to fail.

Functions are found by their braces: the outermost block, inside namespaces and types only, whose
head has a parameter list. That is exact for code that clang-format has formatted.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["include", "src", "tests", "examples", "bench", "fuzz"]

COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
TRANSPARENT = re.compile(r'\b(namespace|class|struct|union|enum|extern)\b')
NAME = re.compile(r"([\w:~]+|operator\S+)\s*\($")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def is_function(head):
    return "(" in head and not TRANSPARENT.search(head.split("(")[0]) and "=" not in head.split("(")[0]


def functions(text):
    """Yields (lines, name, first line) of each function."""
    text = DIRECTIVE.sub(blank, COMMENT_OR_LITERAL.sub(blank, text))
    start, depth, opened = 0, 0, None  # `opened`: where the function being read has its head
    for match in re.finditer(r"[{};]", text):
        if opened is None and match.group() == "{":
            head = text[start:match.start()]
            if is_function(head):
                opened, depth = start + len(head) - len(head.lstrip()), 0
        if opened is not None:
            depth += {"{": 1, "}": -1, ";": 0}[match.group()]
            if depth == 0:
                body = text[opened:match.end()]
                name = NAME.search(body[:body.index("(") + 1])
                yield body.count("\n") + 1, name.group(1) if name else "?", text.count("\n", 0, opened) + 1
                opened = None
        if opened is None:
            start = match.end()


def main():
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in {".h", ".cpp"}]
    files, found = [], []
    for path in paths:
        text, name = path.read_text(), path.relative_to(ROOT)
        files.append((text.count("\n"), str(name)))
        found += [(lines, f"{function}  {name}:{line}") for lines, function, line in functions(text)]
    for title, rows in (("files", files), ("functions", found)):
        print(f"longest {title} (of {len(rows)}):")
        for lines, name in sorted(rows, key=lambda row: -row[0])[:10]:
            print(f"  {lines:5}  {name}")


if __name__ == "__main__":
    main()
