"""The pictures of the landing page agree with the committed results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
# {picture: (its script, its table)}
PICTURES = {
    "comparison.svg": ("draw_comparison.py", RESULTS / "2026-11-27-h100" / "sizes.md"),
    "programs.svg": ("draw_programs.py", RESULTS / "2026-12-01-h200" / "scripts.md"),
}


def draw(picture: str, table: Path, out: Path) -> str:
    script = ROOT / "scripts" / PICTURES[picture][0]
    subprocess.run([sys.executable, str(script), str(table), "--out", str(out)], check=True)
    return out.read_text()


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_shows_the_committed_table(picture: str, tmp_path: Path) -> None:
    drawn = draw(picture, PICTURES[picture][1], tmp_path / picture)
    assert drawn == (ROOT / "docs" / picture).read_text()
    if picture == "comparison.svg":
        assert "NumPy, n = 2048: 48.3 µs" in drawn and "offload_args, n = 2048: 515 µs" in drawn  # slower in this case
    else:
        assert "Gaussian process of 4,000 points, rewritten for CuPy: 15.4 ms" in drawn  # far faster in this case
        assert drawn.count("the same program under run: ") == 22
        assert drawn.count("rewritten for CuPy: ") == 16


@pytest.mark.parametrize(
    ("picture", "figure", "other"),
    [("comparison.svg", "| 5,812 |", "| 812 |"), ("programs.svg", "| 15.4 |", "| 154 |")],
)
def test_another_figure_is_another_picture(picture: str, figure: str, other: str, tmp_path: Path) -> None:
    changed = tmp_path / "changed.md"
    changed.write_text(PICTURES[picture][1].read_text().replace(figure, other))
    assert draw(picture, changed, tmp_path / picture) != (ROOT / "docs" / picture).read_text()
