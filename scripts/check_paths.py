"""Checks that the files, folders and C names which the Markdown pages name exist, and that each folder has its purpose.

    python scripts/check_paths.py

It reads links, and code spans with a slash and an ending of SUFFIXES, or with a slash at their end. A path may be
relative to the root, to csrc or csrc/include (as includes are), to offload_args or to the page; <library> and * stand
for any name. A C name is a code span that begins with oa_ or OA_; csrc or the module of Fortran must have it,
unless it is generated for a library.

Each folder of sources has a row in the table of ARCHITECTURE.md. The file to read first begins with a comment.
It prints one line for each fault and exits with 1, or prints nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from check_words import files_of

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = (".c", ".def", ".h", ".inc", ".json", ".md", ".py", ".pyi", ".svg", ".toml", ".txt", ".yml", ".yaml")
# Paths on pages begin at one of these folders, or at the page.
ROOTS = (ROOT, ROOT / "csrc", ROOT / "csrc/include", ROOT / "offload_args")
# Files in these folders are made by the build or by a program.
MADE = ("build/", "dist/", "wheels/")
# Folders that ARCHITECTURE.md describes, if there are sources in them.
FOLDERS = ("[a-z]*/", "csrc/*/", "offload_args/[_a-z]*/", "bindings/[a-z]*/")


def named(text: str) -> Iterator[str]:
    """Yield the paths that a page names."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"\]\((?!https?:|#)([^)#\s]+)", re.sub(r"`[^`\n]+`", "``", text))
    for span in re.findall(r"`([^`\n]+)`", text):
        path = span.partition(":")[0].partition(" (")[0]
        if "/" in path and " " not in path and path.endswith((*SUFFIXES, "/")) and path[0] not in "/~$.":
            yield path


def c_names(text: str) -> Iterator[str]:
    """Yield the C names that a page names: `oa_begin`, `oa_region_options.tag`, `oa_counters *`."""
    for span in re.findall(r"`([^`\n]+)`", text):
        yield from re.findall(r"\b(oa_\w*[a-z0-9]|OA_\w*[A-Z0-9])\b(?!\*)", span)


def exists(path: str, page: Path) -> bool:
    pattern = re.sub(r"<[^>]*>", "*", path).rstrip("/")
    return any(any(folder.glob(pattern)) for folder in (*ROOTS, page.parent))


def folders() -> Iterator[str]:
    """Yield the faults of the table of folders in ARCHITECTURE.md."""
    rows = re.findall(r"^\| (`.*?/`) \|.*\| `([^`]+)` \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    described = {folder for cell, _ in rows for folder in re.findall(r"`([^`]+)/`", cell)}
    for path in sorted(path for pattern in FOLDERS for path in ROOT.glob(pattern) if path.name != "__pycache__"):
        folder = str(path.relative_to(ROOT))
        if any(path.glob("*.[chp]*")) and f"{folder}/" not in MADE and folder not in described:
            yield f"ARCHITECTURE.md: no row for {folder}/"
    for _, first in rows:
        path = next(folder / first for folder in (ROOT, ROOT / "offload_args") if (folder / first).exists())
        if not path.read_text().startswith(("/*", '"""', "#")):
            yield f"{first}: begins with no comment that says what its folder is for"


def main() -> int:
    libraries = "|".join(["blas", *(path.stem for path in (ROOT / "bindings/api").glob("*.json"))])
    sources = [path for path in (ROOT / "csrc").rglob("*") if path.suffix in {".c", ".def", ".h", ".inc"}]
    sources.append(ROOT / "bindings/emit/fortran.py")  # the module of Fortran has a few names that csrc lacks
    known = set(re.findall(r"\w+", "".join(path.read_text() for path in sources)))
    faults = []
    for page in files_of(ROOT, "*.md"):
        if page.startswith(("benchmarks/results/", "CHANGELOG.md")) or not (ROOT / page).exists():
            continue
        text = (ROOT / page).read_text()
        missing = [path for path in set(named(text)) if not path.startswith(MADE) and not exists(path, ROOT / page)]
        missing += [name for name in set(c_names(text)) - known if not re.match(f"oa_({libraries})_", name)]
        faults += [f"{page}: names {name}, which does not exist" for name in sorted(missing)]
    faults += folders()
    print("\n".join(faults), end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
