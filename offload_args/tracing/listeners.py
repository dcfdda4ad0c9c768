"""Listeners that report events as they are fetched: as log lines, and as NVTX ranges."""

from __future__ import annotations

import logging
from typing import Any

from .. import _core
from ..devices import by_number
from ..display import rate_text, size_text, time_text
from .collect import Site

__all__ = ["Log", "NvtxRanges", "failure", "nvtx_ranges"]


def failure(raw: _core.TraceEvent) -> str:
    if not raw.status:
        return ""
    return f"status {raw.status}" if raw.kind == _core.OA_TRACE_CALL else _core.status_name(raw.status)


class _StderrHandler(logging.StreamHandler[Any]):
    """Write to stderr in a program that has not set up logging."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


class Log:
    """Log events to the logger "offload_args" as they are fetched."""

    flags = _core.OA_TRACE_ON

    def __init__(self) -> None:
        self._logger = logging.getLogger("offload_args")
        if not self._logger.handlers:
            handler = _StderrHandler()
            handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            self._logger.addHandler(handler)
        if self._logger.level == logging.NOTSET:
            self._logger.setLevel(logging.INFO)

    def take(self, event: _core.TraceEvent, site: Site | None) -> None:
        raw = event
        kind = _core.TRACE_KINDS[raw.kind]
        device = by_number(raw.device).name
        took = (raw.ended - raw.begun) * 1e-9
        at = f" {site.places[0]}" if site is not None and site.places else ""
        failed = f", FAILED: {failure(raw)}" if raw.status else ""
        if kind == "enter":
            names = ", ".join(site.names) if site is not None else ""
            text = f"region {raw.region}{at} on {device}: {names or 'entered'} ({size_text(raw.nbytes)} allocated)"
        elif kind == "leave":
            text = f"region {raw.region}{at} left in {time_text(took)}"
        elif kind in ("up", "down", "peer"):
            rate = rate_text(raw.nbytes, took)
            text = f"{kind} {raw.name}: {size_text(raw.nbytes)} in {time_text(took)}{rate}, {raw.why}"
        elif kind == "call":
            text = f"call {raw.name} on {device}: {time_text(took)}"
        elif kind == "launch":
            text = f"launch {raw.name} on {device}: {time_text(took)}, {raw.why}"
        elif kind == "wait":
            text = f"wait on {device}: {time_text(took)}, {raw.why}"
        else:
            text = f"{kind} {size_text(raw.nbytes)} on {device}"
        self._logger.info("%s%s", text, failed)

    def entering(self, tag: int, site: Site) -> None:
        pass

    def left(self, tag: int) -> None:
        pass


class NvtxRanges:
    """Mark each region as a range in the domain "offload_args", if the package nvtx is installed.

    Copies and calls get no range, because a profiler records them from the driver.
    """

    flags = 0  # only the ends of regions are needed

    def __init__(self) -> None:
        self._ranges: dict[int, Any] = {}
        self._nvtx: Any = None

    def entering(self, tag: int, site: Site) -> None:
        if self._nvtx is None:
            try:
                import nvtx  # type: ignore[import-untyped,import-not-found,unused-ignore]
            except ImportError:
                nvtx = False
            self._nvtx = nvtx
        if self._nvtx:
            message = f"region {site.places[0] if site.places else ''}: {', '.join(site.names)}"
            self._ranges[tag] = self._nvtx.start_range(message=message, domain="offload_args")

    def left(self, tag: int) -> None:
        started = self._ranges.pop(tag, None)
        if started is not None:
            self._nvtx.end_range(started)

    def take(self, event: _core.TraceEvent, site: Site | None) -> None:
        pass


nvtx_ranges = NvtxRanges()
