"""Draws a table of benchmarks/sizes.py for the landing page: time from and to NumPy against size.

    python scripts/draw_comparison.py benchmarks/results/<date>/sizes.md --out docs/comparison.svg

Each panel has every size of the table for its work, even sizes at which another package is faster. A table of
benchmarks/compare.py can be drawn, too; it gives a panel for each work that it measures.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from math import ceil, floor, log10
from pathlib import Path

# The columns of the table to draw, with colours that differ in lightness, too.
SERIES = {
    "offload_args": "#0b62b0",
    "plain C": "#1c1c1c",
    "CuPy": "#b35300",
    "PyTorch": "#2d7d46",
    "NumPy": "#8a5fb0",
}
PANELS = {
    "sgemv, one call": r"sgemv with transfers, n = (\d+)$",
    "sgemm, one call": r"sgemm with transfers, n = (\d+)$",
    "solve A x = b, one call": r"solve with transfers, n = (\d+)$",
    "100 power-iteration steps, one region": r"100 power-iteration steps, n = (\d+), one region$",
}
FONT = "system-ui, Helvetica, Arial, sans-serif"
WIDTH, TOP, LEFT, PLOT_WIDTH, PLOT_HEIGHT = 660, 62, 62, 250, 220
COLUMN, ROW = 320, 300  # two panels in each row, so that they are readable on a phone
Points = list[tuple[float, float]]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read(table: str) -> dict[str, dict[str, Points]]:
    """Return the points, size and microseconds, of each series in each panel."""
    lines = table.splitlines()
    heading = next(cells(line) for line in lines if line.startswith("| work, µs |"))
    panels: dict[str, dict[str, Points]] = {panel: {} for panel in PANELS}
    for line in lines:
        row = cells(line)
        for panel, pattern in PANELS.items():
            if not (match := re.match(pattern, row[0])):
                continue
            for name in SERIES:
                text = row[heading.index(name)].split(" ")[0].replace(",", "")
                if text != "—":
                    panels[panel].setdefault(name, []).append((float(match[1]), float(text)))
    return panels


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 12, color: str = "#1c1c1c") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-family="{FONT}" font-size="{size}" fill="{color}">{words}</text>'


def label(microseconds: float) -> str:
    """Return a power of ten in the unit that suits it."""
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= scale:
            return f"{microseconds / scale:g} {unit}"
    return f"{microseconds:g} µs"


def panel(title: str, series: dict[str, Points], left: float, top: float) -> list[str]:
    """Return the elements of one panel: axes with a line for each power of ten, and the series."""
    sizes = [size for points in series.values() for size, _ in points]
    times = [time for points in series.values() for _, time in points]
    single = len(set(sizes)) == 1
    low_x, high_x = (min(sizes) / 2, max(sizes) * 2) if single else (min(sizes), max(sizes))
    low, high = floor(log10(min(times))), ceil(log10(max(times)))

    def x_of(size: float) -> float:
        return left + (log10(size) - log10(low_x)) / (log10(high_x) - log10(low_x)) * PLOT_WIDTH

    def y_of(time: float) -> float:
        return top + PLOT_HEIGHT - (log10(time) - low) / (high - low) * PLOT_HEIGHT

    parts = [text(left, top - 12, title, size=13)]
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        parts.append(f'<path d="M{left:.1f} {y:.1f}h{PLOT_WIDTH}" stroke="#d5d9de"/>')
        parts.append(text(left - 6, y + 4, label(10.0**power), "end", 11, "#4a4f57"))
    for size in sorted(set(sizes)):
        parts.append(text(x_of(size), top + PLOT_HEIGHT + 18, f"{size:g}", "middle", 10, "#4a4f57"))
    parts.append(text(left + PLOT_WIDTH / 2, top + PLOT_HEIGHT + 36, "n", "middle", 12))
    for name, points in series.items():
        at = [(x_of(size), y_of(time)) for size, time in sorted(points)]
        width = 3 if name == "offload_args" else 1.6
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{SERIES[name]}" stroke-width="{width}"/>')
        for (x, y), (size, time) in zip(at, sorted(points), strict=True):
            words = f"{name}, n = {size:g}: {time:g} µs"
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{SERIES[name]}"><title>{words}</title></circle>'
            )
    return parts


def draw(table: str) -> str:
    """Return the picture of a table."""
    panels = [(title, series) for title, series in read(table).items() if series]
    height = TOP + ROW * (ceil(len(panels) / 2) - 1) + PLOT_HEIGHT + 48
    parts = [f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>']
    for place, name in enumerate(SERIES):
        x = LEFT + place * 122
        parts.append(f'<path d="M{x} 20h22" stroke="{SERIES[name]}" stroke-width="4"/>')
        parts.append(text(x + 28, 24, name))
    for place, (title, series) in enumerate(panels):
        parts += panel(title, series, LEFT + place % 2 * COLUMN, TOP + place // 2 * ROW)
    return svg("draw_comparison.py", height, parts)


def svg(script: str, height: float, parts: list[str]) -> str:
    """Return the picture that a script of this folder draws, WIDTH wide, from its elements."""
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<!-- Drawn by scripts/{script}. -->'
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def draw_file(benchmark: str, draw: Callable[[str], str]) -> None:
    """Draw the table that the command line names, into the file that it names."""
    parser = argparse.ArgumentParser(description=f"Draw a table of benchmarks/{benchmark}.")
    parser.add_argument("table", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.write_text(draw(options.table.read_text()))


if __name__ == "__main__":
    draw_file("sizes.py", draw)
