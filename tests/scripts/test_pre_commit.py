"""The hooks of pre-commit accept and refuse the same files as `make lint`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_hooks_use_the_exact_versions_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    exact = {need for need in project["optional-dependencies"]["dev"] if "==" in need}
    pinned = re.findall(r"[\w-]+==[\w.]+", (ROOT / ".pre-commit-config.yaml").read_text())
    assert {"ruff", "clang-format", "codespell"} <= {need.partition("==")[0] for need in pinned}
    assert set(pinned) <= exact


def test_hooks_need_nothing_that_a_fresh_clone_lacks() -> None:
    assert ".venv" not in (ROOT / ".pre-commit-config.yaml").read_text()
