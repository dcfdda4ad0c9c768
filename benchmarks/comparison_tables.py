"""The tables, plots and heading of a comparison. compare.py and sizes.py import it."""

from __future__ import annotations

import datetime
import importlib
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from comparison_rows import CALL, OURS, Row

if TYPE_CHECKING:
    from compare import Comparison

CONTENDERS = (OURS, CALL, "plain C", "CuPy", "PyTorch", "nvmath-python", "PyCUDA", "NumPy")
SEAMS = {"packed | chunks": 256 << 10, "cached | past the caches": 512 << 10, "many chunks": 4 << 20}


def line(row: Row) -> str:
    goals = "; ".join(map(str, row.goals))
    return f"| {' | '.join([row.work, *map(row.cell, CONTENDERS), goals, row.note])} |"


def table(comparison: Comparison) -> str:
    """Return the table as Markdown, for a file of the repository."""
    built = ["| work, µs | " + " | ".join(CONTENDERS) + " | goal on the H200 | |"]
    built.append("|---|" + "---:|" * len(CONTENDERS) + "---|---|")
    built += map(line, comparison.rows)
    built.append("\nThe times are medians. In brackets: the time of offload_args divided by this time.")
    if comparison.missing:
        built.append(
            "Left out: " + "; ".join(f"{name} ({why[:200]})" for name, why in comparison.missing.items()) + "."
        )
    for way, seen in comparison.sweep.items():
        if not seen:
            continue
        names = list(seen)
        built += [f"\n| bytes {way}, µs | " + " | ".join(names) + " |", "|---:|" + "---:|" * len(names)]
        by_name = {name: dict(points) for name, points in seen.items()}
        for size, _ in seen[names[0]]:
            built.append(
                f"| {size:,} | " + " | ".join(f"{by_name[name].get(size, np.nan):,.1f}" for name in names) + " |"
            )
    return "\n".join(built) + "\n"


def plot(comparison: Comparison, folder: Path) -> None:
    """Plot µs against bytes for each way. Without matplotlib, report that there is no plot."""
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError:
        print("No matplotlib: no plots.")
        return
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    for way, seen in comparison.sweep.items():
        if not seen:
            continue
        figure, axes = pyplot.subplots(figsize=(8, 5))
        for name, points in seen.items():
            axes.loglog(*zip(*points, strict=True), marker=".", label=name)
        for name, at in SEAMS.items():
            axes.axvline(at, color="0.7", linewidth=0.8, linestyle="--")
            axes.text(at, 0.02, f" {name}", rotation=90, fontsize=7, transform=axes.get_xaxis_transform())
        axes.set(xlabel="bytes", ylabel="µs", title=f"one NumPy array {way}, {comparison.device.model}")
        axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(folder / f"copies-{way}.png", dpi=120, bbox_inches="tight")
        pyplot.close(figure)


def header(comparison: Comparison, command: str) -> str:
    device = comparison.device
    versions = ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
    date = datetime.datetime.now(datetime.UTC).date()
    place = f"{device} ({device.model}, driver {device.driver_version}), {len(os.sched_getaffinity(0))} CPUs"
    python = f"Python {platform.python_version()}, Linux {platform.release().partition('-')[0]}"
    return f"{date}, `{command}`: {place}, {python}; {versions}.\n\n"
