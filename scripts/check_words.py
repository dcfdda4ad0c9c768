"""Checks phrases and names that docs/internals/terms.md rules out, and lines of at most 120 columns.

    python scripts/check_words.py [FILE ...]

Without files it reads all files that git tracks, and new ones that git does not ignore. It finds phrases in comments
and strings of sources, and in Markdown outside of code. It finds names in Python, and in the package's C and its tests.
It prints one line for each fault and exits with 1, or prints nothing.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 120

# Each phrase with its replacement.
PHRASES: list[tuple[str, str]] = [
    (r"\bfor\s+want\s+of\b", "say 'without', or 'under pressure' of memory"),
    (r"\b(?:giv(?:e|es|en|ing)|gave|hand(?:s|ed|ing)?)\s+back\b", "return to a pool, or free memory"),
    (r"\bas\s+ever\b", "say 'as before', or nothing"),
    (r"\bonce\s+more\b", "say 'again'"),
    (r"\b(?:one|ones|each|lines|columns|rows)\s+behind\s+(?:the|each)\s+other\b", "say 'one after the other'"),
]

# Names that do not describe the named thing.
NAMES_OF_NOTHING = {"one", "found", "given", "made", "what", "where"}
# In C, `one` is the number 1 that is passed by address, and what() is a method of C++.
C_NAMES = re.compile(r"(?<![.>\w])(?:found|given|made|where)\b|(?<![.>\w])what\b(?!\s*\()")
# Allowed are public names of the package, and a field that generated hooks set by its name.
ALLOWED_NAMES = {
    ("offload_args/libraries.py", "found"),
    ("offload_args/embedding.py", "what"),
    ("csrc/accelerate/lapack_call.h", "found"),
}

SUFFIXES = {".c", ".def", ".h", ".inc", ".md", ".py", ".pyi", ".sh", ".toml", ".txt", ".yaml", ".yml", ".cfg", ".in"}
NAMES = {"Makefile", "CODEOWNERS", "run", "gpu-check", "sanitize", ".clang-format", ".editorconfig"}
# These files are written by programs, or kept as they were printed.
EXEMPT = ("benchmarks/results/", "bindings/report.md")
# These files contain the phrases because they rule them out.
SPEAKS_OF_THEM = {"docs/internals/terms.md", "scripts/check_words.py", "tests/scripts/test_checks.py"}


def blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def blank_match(match: re.Match[str]) -> str:
    return blank(match[0])


def c_prose(text: str) -> str:
    """Return C source in which blanks replace everything but comments and strings."""
    kept, at = [], 0
    for match in re.finditer(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', text, re.DOTALL):
        kept += [blank(text[at : match.start()]), re.sub(r"(?<=\n) *\*(?!/)", blank_match, match[0])]
        at = match.end()
    return "".join(kept) + blank(text[at:])


def joined_comments(text: str) -> str:
    """Return text in which the comments of neighbouring lines are joined: only the first # is left."""
    lines = text.split("\n")
    comment = [line.lstrip().startswith("#") for line in lines]
    return "\n".join(
        line.replace("#", " ", 1) if row and comment[row] and comment[row - 1] else line
        for row, line in enumerate(lines)
    )


def python_prose(text: str) -> str:
    """Return Python source in which blanks replace everything but comments and strings."""
    lines = text.splitlines(keepends=True)
    kept = [list(blank(line)) for line in lines]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if tokenize.tok_name[token.type] not in {"COMMENT", "STRING", "FSTRING_MIDDLE"}:
            continue
        for row in range(token.start[0], token.end[0] + 1):
            first = token.start[1] if row == token.start[0] else 0
            last = token.end[1] if row == token.end[0] else len(lines[row - 1])
            kept[row - 1][first:last] = lines[row - 1][first:last]
    return joined_comments("".join("".join(line) for line in kept))


def prose_of(path: str, text: str) -> str:
    """Return the text of a file in which blanks replace everything but prose; lines and columns stay the same."""
    suffix = Path(path).suffix
    if suffix == ".md":
        text = re.sub(r"^```.*?^```|`[^`\n]*`", blank_match, text, flags=re.DOTALL | re.MULTILINE)
        return re.sub(r"^#+", lambda match: "^" * len(match[0]), text, flags=re.MULTILINE)
    if suffix in {".c", ".h", ".inc", ".def"}:
        return c_prose(text)
    return python_prose(text) if suffix in {".py", ".pyi"} else joined_comments(text)


def names_of(path: str, text: str) -> Iterator[tuple[str, int]]:
    """Yield the refused names in a source, each with its line: names that are bound in Python, or any names in C."""
    if path.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in NAMES_OF_NOTHING:
                yield node.id, node.lineno
            elif isinstance(node, ast.arg) and node.arg in NAMES_OF_NOTHING:
                yield node.arg, node.lineno
    elif path.endswith((".c", ".h", ".inc")):
        code = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank_match, text, flags=re.DOTALL)
        for match in C_NAMES.finditer(code):
            yield match[0], text.count("\n", 0, match.start()) + 1


def faults_of(path: str, text: str) -> Iterator[str]:
    """Yield the faults of a file, each with its place."""
    for row, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS:
            yield f"{path}:{row}: {len(line)} columns; at most {COLUMNS}"
    for name, row in names_of(path, text):
        if (path, name) not in ALLOWED_NAMES:
            yield f"{path}:{row}: the name {name!r}: name the thing"
    plain = re.sub(r"[#*/\"'\\]", " ", text)  # has each phrase of the prose, also one of several lines or strings
    if path in SPEAKS_OF_THEM or not any(re.search(phrase, plain, re.IGNORECASE) for phrase, _ in PHRASES):
        return
    prose = prose_of(path, text)
    for phrase, instead in PHRASES:
        for match in re.finditer(phrase, prose, re.IGNORECASE):
            words = " ".join(match[0].split())
            yield f"{path}:{text.count(chr(10), 0, match.end()) + 1}: {words!r}: {instead}"


def files_of(repository: Path, *patterns: str) -> list[str]:
    """Return the files that git tracks, or would add, so that a fault in a new file is reported before its commit."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.split("\0") if path]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    arguments = parser.parse_args()
    paths = [str(file.resolve().relative_to(ROOT)) for file in arguments.files] or files_of(ROOT)
    faults = []
    for path in paths:
        if not (Path(path).suffix in SUFFIXES or Path(path).name in NAMES) or path.startswith(EXEMPT):
            continue
        if (ROOT / path).is_file():
            faults += faults_of(path, (ROOT / path).read_text())
    print("\n".join(faults), end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
