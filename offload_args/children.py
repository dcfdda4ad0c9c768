"""Unmodified programs in the child processes of `offload_args run --children`.

The parent sets the environment variable OFFLOAD_ARGS_RUN to the options of the acceleration. It adds the folder startup
to PYTHONPATH, so that the Python of each child imports startup/sitecustomize.py. At its end, a child writes its report
and its decisions into a folder of the parent. The parent reads these files at its own end.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import sys
import tempfile
from typing import Any, Final

from .display import plural, saved_text
from .errors import OffloadError
from .plans import Decision
from .scripts import Accelerated, accelerate
from .tracing.source import Place

__all__ = ["Children", "start"]

VARIABLE: Final = "OFFLOAD_ARGS_RUN"
_STARTUP: Final = os.path.join(os.path.dirname(__file__), "startup")
_started: list[Accelerated] = []


def start() -> None:
    """Accelerate this process with its parent's options. If that fails, the program runs without acceleration."""
    text = os.environ.get(VARIABLE, "")
    if not text or _started:
        return
    try:
        options = json.loads(text)
        on = accelerate(
            options["device"],
            margin=options["margin"],
            lines=options["lines"],
            plan=options["plan"],
            deterministic=options["deterministic"],
        )
        folder = str(options["reports"])
    except (OffloadError, ValueError, TypeError, KeyError, OSError, RuntimeError) as error:
        print(f"offload_args run: process {os.getpid()} runs as it is: {error}", file=sys.stderr)
        return
    _started.append(on)
    atexit.register(_tell, on, folder, os.getpid())


def _tell(on: Accelerated, folder: str, process: int) -> None:
    """Write the report for the parent, unless the parent has ended."""
    if os.getpid() != process:
        return
    report = on.report
    if not report.calls:
        return
    data = {"report": report.as_dict(), "decisions": [*on.decisions()]}
    with contextlib.suppress(OSError), open(os.path.join(folder, f"{process}.json"), "x") as file:
        json.dump(data, file)


class Children:
    """Pass the options of `run` to child processes, and hold the reports of these processes."""

    def __init__(self, device: str | None, margin: float, lines: bool, plan: str | None, deterministic: bool) -> None:
        self._folder = tempfile.mkdtemp(prefix="offload_args-")
        self.reports: list[dict[str, Any]] = []
        self.decisions: list[Decision] = []
        options = {
            "device": device,
            "margin": margin,
            "lines": lines,
            "plan": None if plan is None else os.path.abspath(plan),
            "deterministic": deterministic,
            "reports": self._folder,
        }
        os.environ[VARIABLE] = json.dumps(options)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_STARTUP, os.environ.get("PYTHONPATH", ""))))

    def collect(self) -> None:
        """Read the reports of the children that have ended."""
        for name in sorted(os.listdir(self._folder)):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                with open(os.path.join(self._folder, name)) as file:
                    data = json.load(file)
                decisions = [Decision(place and Place(*place), *rest) for place, *rest in data["decisions"]]
                self.reports.append(data["report"])
                self.decisions += decisions
        shutil.rmtree(self._folder, ignore_errors=True)

    def __str__(self) -> str:
        calls, gone, saved = (sum(report[name] for report in self.reports) for name in ("calls", "gone", "saved"))
        count = len(self.reports)
        processes = "child process" if count == 1 else "child processes"
        return f"{count} {processes}: {calls} {plural('call', calls)}, {gone} went; {saved_text(saved)} by the model"
