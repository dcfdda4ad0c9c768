"""Checks that the files and folders which the Markdown pages name exist.

    python scripts/check_paths.py

It looks at links, and at code spans with a slash and an ending of SUFFIXES, or with a slash at their end. A path may be
relative to the root, to csrc (as includes are), to offload_args or to the page; <library> and * stand for any name. It
prints one line a fault and exits with 1, or prints nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = (".c", ".def", ".h", ".inc", ".json", ".md", ".py", ".pyi", ".svg", ".toml", ".txt", ".yml", ".yaml")
# Made by the build or by a program.
MADE = ("build/", "dist/", "wheels/")


def named(text: str) -> Iterator[str]:
    """Yields the paths that a page names."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    for span in re.findall(r"`([^`\n]+)`", text):
        path = span.partition(":")[0].partition(" (")[0]
        if "/" in path and " " not in path and path.endswith((*SUFFIXES, "/")) and path[0] not in "/~$.":
            yield path


def exists(path: str, page: Path) -> bool:
    pattern = re.sub(r"<[^>]*>", "*", path).rstrip("/")
    return any(any(folder.glob(pattern)) for folder in (ROOT, ROOT / "csrc", ROOT / "offload_args", page.parent))


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    faults = [
        f"{page}: names {path}, which does not exist"
        for page in listed.splitlines()
        if not page.startswith(("benchmarks/results/", "CHANGELOG.md")) and (ROOT / page).exists()
        for path in sorted(set(named((ROOT / page).read_text())))
        if not path.startswith(MADE) and not exists(path, ROOT / page)
    ]
    print("\n".join(faults), end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
