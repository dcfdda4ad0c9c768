"""Draws a table of benchmarks/scripts_as_they_are.py for the landing page: the times of programs, as bars.

    python scripts/draw_programs.py benchmarks/results/<date>/scripts.md --out docs/programs.svg

Each program has a bar for NumPy on the CPU, one for the same program under `run`, and one for the program that was
rewritten for CuPy, if the table has its time. All programs of the table are drawn.
"""

from __future__ import annotations

from math import ceil, floor, log10

from draw_comparison import WIDTH, cells, draw_file, label, svg, text

# The columns of the table to draw: titles, their places, and colours that differ in lightness, too.
SERIES = {
    "CPU": ("NumPy on 16 cores", 14, "#8a5fb0"),
    "accelerated": ("the same program under run", 190, "#0b62b0"),
    "CuPy": ("rewritten for CuPy", 420, "#b35300"),
}
TOP, LEFT, PLOT_WIDTH, BAR, GAP = 44, 262, 370, 7, 9


def read(table: str) -> list[tuple[str, dict[str, float]]]:
    """Return each program's name and its milliseconds by column."""
    programs = []
    heading: list[str] = []
    for line in table.splitlines():
        row = cells(line)
        if row[0] == "program, ms":
            heading = row
        elif len(row) == len(heading) > 1 and not row[0].startswith("---"):
            times = {name: row[heading.index(name)] for name in SERIES}
            programs.append((row[0], {name: float(time) for name, time in times.items() if time}))
    return programs


def draw(table: str) -> str:
    """Return the picture of a table."""
    programs = read(table)
    times = [time for _, series in programs for time in series.values()]
    low, high = floor(log10(min(times))), ceil(log10(max(times)))
    row = len(SERIES) * BAR + GAP
    bottom = TOP + row * len(programs)

    def x_of(time: float) -> float:
        return LEFT + (log10(time) - low) / (high - low) * PLOT_WIDTH

    parts = [f'<rect width="{WIDTH}" height="{bottom + 24}" rx="6" fill="#ffffff"/>']
    for title, x, color in SERIES.values():
        parts.append(f'<path d="M{x} 20h22" stroke="{color}" stroke-width="{BAR}"/>')
        parts.append(text(x + 28, 24, title))
    for power in range(low, high + 1):
        x = x_of(10.0**power)
        parts.append(f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="#d5d9de"/>')
        parts.append(text(x, bottom + 16, label(10.0**power * 1e3), "middle", 11, "#4a4f57"))
    for place, (program, series) in enumerate(programs):
        top = TOP + place * row
        parts.append(text(LEFT - 8, top + row / 2 + 2, program, "end", 11))
        for bar, (name, (title, _, color)) in enumerate(SERIES.items()):
            if name not in series:
                continue
            y, width = top + bar * BAR + GAP / 2, x_of(series[name]) - LEFT
            words = f"{program}, {title}: {series[name]:g} ms"
            parts.append(f'<rect x="{LEFT}" y="{y:.1f}" width="{width:.1f}" height="{BAR - 1}" fill="{color}">')
            parts.append(f"<title>{words}</title></rect>")
    return svg("draw_programs.py", bottom + 24, parts)


if __name__ == "__main__":
    draw_file("scripts_as_they_are.py", draw)
