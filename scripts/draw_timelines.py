"""Draws saved timelines of traces, one below the other on one scale, such as the two in docs/guide/timelines.svg.

    python scripts/draw_timelines.py --skip 1 --ms 20 --out docs/guide/timelines.svg before.json after.json

A drawing shows the main thread: regions, the calls in them, and the calls' copies and waits. --skip is the number of
first calls to leave out, because these load libraries; --ms is the time to show.
"""

from __future__ import annotations

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any

COLORS = {"region": "#c9d3dd", "call": "#0b62b0", "up": "#b35300", "down": "#2d7d46", "wait": "#8a8f98"}
FONT = "system-ui, Helvetica, Arial, sans-serif"
WIDTH, LEFT, ROW, GAP = 900, 16, 22, 34


def text(x: float, y: float, words: str, color: str = "#1c1c1c", size: int = 13) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="{FONT}" font-size="{size}" fill="{color}">{escape(words)}</text>'
    )


def slices(path: Path, skip: int) -> list[dict[str, Any]]:
    """Return the slices of the calling thread, from the region of the first call that is not skipped."""
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") in COLORS]
    calls = sorted((event for event in events if event["cat"] == "call"), key=lambda event: event["ts"])
    first = calls[skip]
    regions = [event for event in events if event["cat"] == "region" and event["ts"] <= first["ts"]]
    begun = max(event["ts"] for event in regions)
    return [
        event | {"ts": event["ts"] - begun} for event in events if event["tid"] == first["tid"] and ends(event) > begun
    ]


def ends(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def panel(path: Path, events: list[dict[str, Any]], top: float, scale: float) -> tuple[list[str], float]:
    """Return the elements of one timeline, and the y below it."""
    parts, stack, deepest = [text(LEFT, top + 14, path.stem)], list[float](), 0
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        while stack and stack[-1] <= event["ts"] + 0.01:
            stack.pop()
        depth = len(stack)
        deepest = max(deepest, depth)
        stack.append(ends(event))
        x, end = (LEFT + min(max(at, 0) * scale, WIDTH - 2 * LEFT) for at in (event["ts"], ends(event)))
        y = top + GAP - 12 + depth * ROW
        if event["ts"] * scale > WIDTH - 2 * LEFT:
            continue
        title = f"<title>{escape(event['name'])}, {event['dur'] / 1000:.3g} ms</title>"
        box = f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(end - x, 0.6):.2f}" height="{ROW - 3}"'
        parts.append(f'{box} fill="{COLORS[event["cat"]]}">{title}</rect>')
        if end - x > 7 * len(event["name"]):
            parts.append(text(x + 4, y + 14, event["name"], "#1c1c1c" if event["cat"] == "region" else "#ffffff", 12))
    return parts, top + GAP + (deepest + 1) * ROW


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip", type=int, default=1)
    parser.add_argument("--ms", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("traces", type=Path, nargs="+")
    options = parser.parse_args()
    scale = (WIDTH - 2 * LEFT) / (options.ms * 1000)
    parts, y = list[str](), 4.0
    for path in options.traces:
        more, y = panel(path, slices(path, options.skip), y, scale)
        parts += more
    parts += [
        text(LEFT, y + 14, "0 ms"),
        text(WIDTH - LEFT - 9 * len(f"{options.ms:g} ms"), y + 14, f"{options.ms:g} ms"),
    ]
    for i, (kind, color) in enumerate(COLORS.items()):
        parts.append(f'<rect x="{240 + 90 * i}" y="{y + 3:.1f}" width="12" height="12" fill="{color}"/>')
        parts.append(text(257 + 90 * i, y + 14, kind))
    size = f'width="{WIDTH}" height="{y + 24:.0f}" viewBox="0 0 {WIDTH} {y + 24:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<!-- Drawn by scripts/draw_timelines.py. -->'
    ground = f'<rect width="{WIDTH}" height="{y + 24:.0f}" rx="6" fill="#ffffff"/>'
    options.out.write_text("\n".join([head, ground, *parts, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
