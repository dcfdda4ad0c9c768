"""The picture of programs on the landing page agrees with the committed results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "benchmarks" / "results" / "2026-12-01-h200" / "scripts.md"
PICTURE = ROOT / "docs" / "programs.svg"


def draw(table: Path, out: Path) -> str:
    script = ROOT / "scripts" / "draw_programs.py"
    subprocess.run([sys.executable, str(script), str(table), "--out", str(out)], check=True)
    return out.read_text()


def test_the_picture_shows_the_committed_table(tmp_path: Path) -> None:
    drawn = draw(TABLE, tmp_path / "programs.svg")
    assert drawn == PICTURE.read_text()
    assert "Gaussian process of 4,000 points, rewritten for CuPy: 15.4 ms" in drawn  # far faster in this case
    assert drawn.count("the same program under run: ") == 22
    assert drawn.count("rewritten for CuPy: ") == 16


def test_another_figure_is_another_picture(tmp_path: Path) -> None:
    changed = tmp_path / "scripts.md"
    changed.write_text(TABLE.read_text().replace("| 15.4 |", "| 154 |"))
    assert draw(changed, tmp_path / "programs.svg") != PICTURE.read_text()
