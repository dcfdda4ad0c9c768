"""The plot of the landing page agrees with the committed results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "benchmarks" / "results" / "2026-11-27-h100" / "sizes.md"


def draw(table: Path, out: Path) -> str:
    script = ROOT / "scripts" / "draw_comparison.py"
    subprocess.run([sys.executable, str(script), str(table), "--out", str(out)], check=True)
    return out.read_text()


def test_the_plot_shows_the_committed_table(tmp_path: Path) -> None:
    drawn = draw(TABLE, tmp_path / "plot.svg")
    assert drawn == (ROOT / "docs" / "comparison.svg").read_text()
    assert "NumPy, n = 2048: 48.3 µs" in drawn and "offload_args, n = 2048: 515 µs" in drawn  # slower in this case


def test_another_figure_is_another_plot(tmp_path: Path) -> None:
    changed = tmp_path / "compare.md"
    changed.write_text(TABLE.read_text().replace("| 5,812 |", "| 812 |"))
    assert draw(changed, tmp_path / "plot.svg") != (ROOT / "docs" / "comparison.svg").read_text()
