"""Draws docs/architecture.svg from docs/architecture.toml.

    python scripts/draw_architecture.py [--check]

--check writes nothing; it fails if the picture is not current, or if it names a file that does not exist.
"""

from __future__ import annotations

import sys
import tomllib
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "docs/architecture.toml"
PICTURE = ROOT / "docs/architecture.svg"

WIDTH, LEFT, MARGIN = 1180, 190, 12
BAND, GAP, WIDEST = 58, 10, 322
COLORS = {"call": "#0b62b0", "array": "#b35300"}
FONTS = {"mono": "ui-monospace, Menlo, Consolas, monospace", "sans": "system-ui, Helvetica, Arial, sans-serif"}


def text(x: float, y: float, words: str, size: int, font: str = "sans", color: str = "#1c1c1c") -> str:
    weight = "bold" if font == "mono" or size > 14 else "normal"
    style = f'font-size="{size}" font-family="{FONTS[font]}" font-weight="{weight}" fill="{color}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {place} rx="5" fill="{fill}" stroke="{stroke}"/>'


def badge(x: float, y: float, label: str, path: str) -> list[str]:
    middle = f'text-anchor="middle" font-size="11" font-family="{FONTS["sans"]}" font-weight="bold" fill="#ffffff"'
    return [
        f'<circle cx="{x:g}" cy="{y:g}" r="9" fill="{COLORS[path]}"/>',
        f'<text x="{x:g}" y="{y + 4:g}" {middle}>{escape(label)}</text>',
    ]


def draw(source: dict[str, Any]) -> str:
    """Return the picture of a source as SVG."""
    bands = source["band"]
    height = 58 + len(bands) * (BAND + GAP) + MARGIN
    back: list[str] = []
    front: list[str] = []
    steps: dict[str, list[tuple[str, float, float]]] = {"call": [], "array": []}
    for row, band in enumerate(bands):
        y = 50 + row * (BAND + GAP)
        back.append(box(MARGIN, y, WIDTH - 2 * MARGIN, BAND, "#f3f4f6", "#c9ccd1"))
        back.append(text(MARGIN + 10, y + 25, band["name"], 14, "mono"))
        back.append(text(MARGIN + 10, y + 43, band["text"], 12, color="#555555"))
        width = min((WIDTH - MARGIN - LEFT - 8) / len(band["boxes"]), WIDEST)
        for column, room in enumerate(band["boxes"]):
            x = LEFT + column * width
            front.append(box(x, y + 8, width - 8, BAND - 16, "#ffffff", "#8a9099"))
            front.append(text(x + 8, y + 26, room["name"], 12, "mono"))
            front.append(text(x + 8, y + 42, room["text"], 11, color="#333333"))
            at = x + width - 20
            for path in ("array", "call"):
                for label in reversed(room.get(path, [])):
                    front += badge(at, y + 20, label, path)
                    steps[path].append((label, at, y + 20))
                    at -= 21
    lines = []
    for path, places in steps.items():
        places.sort()
        points = " ".join(f"{x:g},{y:g}" for _, x, y in places)
        lines.append(
            f'<polyline points="{points}" fill="none" stroke="{COLORS[path]}" stroke-width="2" opacity="0.35"/>'
        )
    front.append(text(MARGIN, 30, source["title"], 17))
    for place, path in ((WIDTH - 390, "call"), (WIDTH - 195, "array")):
        front += badge(place, 25, "1" if path == "call" else "a", path)
        front.append(text(place + 15, 30, source[path], 13, color=COLORS[path]))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<!-- Drawn by scripts/draw_architecture.py from docs/architecture.toml. -->",
            f"<title>{escape(source['title'])}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *back,
            *lines,
            *front,
            "</svg>",
            "",
        ]
    )


def missing(source: dict[str, Any]) -> list[str]:
    """Return the files that the picture names and the repository lacks."""
    files = [
        (band["name"] if band["name"].endswith("/") else "") + box["name"]
        for band in source["band"]
        for box in band["boxes"]
        if band["name"].endswith("/") or box["name"].startswith("bindings/")
    ]
    return [file for file in files if not any(ROOT.glob(file))]


def main() -> int:
    source = tomllib.loads(SOURCE.read_text())
    faults = [f"{SOURCE.relative_to(ROOT)}: no file {file}" for file in missing(source)]
    picture = draw(source)
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(picture)
    elif not PICTURE.exists() or PICTURE.read_text() != picture:
        faults.append(f"{PICTURE.relative_to(ROOT)} is not current: run scripts/draw_architecture.py")
    print("\n".join(faults), end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
