"""Passes the package's version, of a release or of a checkout between two releases, to scikit-build-core.

The number is in csrc/include/offload_args/core.h. A clean checkout whose commit has the tag v<number> is the
release of that number. Any other checkout is <number>.dev0+g<commit>, with .dirty after it if tracked files were
changed. A copy without git is <number>.dev0. An archive by git, and the source archive of the package, have the
version of their checkout.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# `git archive` replaces this text by the commit and its names, because of .gitattributes.
ARCHIVED = "$Format:%h %D$"


def _git(*arguments: str) -> str | None:
    """Return the output of git; None without git, or outside of a checkout."""
    try:
        run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def _of_commit(number: str, commit: str, is_release: bool, is_dirty: bool = False) -> str:
    # "g" precedes the commit, because a number would lose its leading zeros.
    return number if is_release and not is_dirty else f"{number}.dev0+g{commit}{'.dirty' * is_dirty}"


def version() -> str:
    """Return the version of the sources to which this file belongs."""
    header = (ROOT / "csrc/include/offload_args/core.h").read_text(encoding="utf-8")
    match = re.search(r"#define OA_VERSION \d+ /\* (\d+\.\d+\.\d+) \*/", header)
    if not match:
        raise RuntimeError("csrc/include/offload_args/core.h says no OA_VERSION")
    number = match[1]
    facts = ROOT / "PKG-INFO"
    written = (
        re.search(r"^Version: (\S+)$", facts.read_text(encoding="utf-8"), re.MULTILINE) if facts.exists() else None
    )
    if written and written[1].partition(".dev")[0] == number:
        return written[1]
    commit, _, names = ARCHIVED.partition(" ")
    if not commit.startswith("$"):
        return _of_commit(number, commit, f"tag: v{number}" in names.split(", "))
    if _git("rev-parse", "--show-prefix") != "":  # this is no checkout, or a folder inside another checkout
        return f"{number}.dev0"
    commit = _git("rev-parse", "--short=8", "HEAD") or ""
    tags = (_git("tag", "--points-at", "HEAD") or "").split()
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return _of_commit(number, commit, f"v{number}" in tags, bool(changed)) if commit else f"{number}.dev0"


def dynamic_metadata(field: str, settings: Mapping[str, Any]) -> str:
    """Return the version to scikit-build-core, which calls this function."""
    if field != "version" or settings:
        raise RuntimeError("package_version.py gives the version only, and has no settings")
    return version()


if __name__ == "__main__":
    print(version())
