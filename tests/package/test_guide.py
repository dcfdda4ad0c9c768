"""Every example of docs/guide/examples.md runs as it stands there, as a program of its own, and prints its text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.devices import open_or_skip

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "examples.md").read_text()


def code_of(section: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))


BEGINNING, *SECTIONS = re.split(r"^## ", GUIDE, flags=re.MULTILINE)
EXAMPLES = {section.partition("\n")[0]: code_of(section) for section in SECTIONS}


def promised(code: str) -> list[str]:
    """Return the text of the comments behind `print`, and of those alone on the lines that follow."""
    lines: list[str] = []
    printing = False
    for line in code.splitlines():
        before, comment, text = line.partition("# ")
        if "print(" in before:
            printing = bool(comment)
        elif before.strip() or not comment:
            printing = False
        if printing:
            lines.append(text)
    return lines


@pytest.mark.parametrize("title", EXAMPLES)
def test_the_guides_example_prints_the_text_beside_it(title: str, tmp_path: Path) -> None:
    if "(on a GPU)" in title:
        open_or_skip("cuda:0")
    code = EXAMPLES[title]
    assert code and promised(code), "an example of each section, with what it prints"
    script = tmp_path / "example.py"
    script.write_text(code_of(BEGINNING) + code)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OFFLOAD_ARGS_")}
    # Python 3.12 warns of every fork of a process with threads.
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", str(script)],
        capture_output=True,
        text=True,
        env=clean,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == promised(code)


def test_the_guides_examples_fit_a_screen() -> None:
    assert len(EXAMPLES) >= 11
    for title, code in EXAMPLES.items():
        assert len(code.splitlines()) <= 32, title
        assert max(map(len, code.splitlines())) <= 120, title
