"""Recordings of a whole process: by OFFLOAD_ARGS_RECORD, and by `python -m offload_args record`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ..display import plural
from ..running import run_to_end, say
from .recorder import Recording

__all__ = ["run", "start_from_environment"]

_FILES = ("OFFLOAD_ARGS_RECORD", "OFFLOAD_ARGS_TRACE")  # these variables name files that only one process may write
_LONGEST = 60  # the most seconds for collecting the facts of `info`


def start_from_environment() -> None:
    """Begin the recording that OFFLOAD_ARGS_RECORD requests.

    The package calls this function once, when it is imported.
    """
    file = os.environ.get("OFFLOAD_ARGS_RECORD", "")
    if file in ("", "0"):
        return
    try:
        Recording(os.path.abspath(file.replace("%p", str(os.getpid())))).start()
    except OSError as error:
        say(f"offload_args: OFFLOAD_ARGS_RECORD: {error}", sys.stderr)


def _info() -> dict[str, Any]:
    """Return the facts of `info --json`. A separate process collects them, so that the script's process loads only the
    modules that the script uses."""
    environment = {name: value for name, value in os.environ.items() if name not in _FILES}
    command = [sys.executable, "-m", "offload_args", "info", "--json"]
    try:
        ran = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_LONGEST
        )
        facts: dict[str, Any] = json.loads(ran.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return facts


def run(run_script: Callable[[], object], file: str, contents: str, calls: int | None, sync: bool, images: bool) -> int:
    """Run a script, record it, and return its exit status; write the name of the recording to stderr."""
    process, stderr = os.getpid(), sys.stderr
    recording = Recording(file, contents, calls, sync, images)
    if contents == "inputs":
        say(f"record: {file} WILL HAVE THE VALUES OF ALL ARRAYS: think of who may see them", stderr)
    try:
        recording.start()
    except OSError as error:
        say(f"record: {error}; the script was not run", stderr)
        return 2
    recording.note_info(_info())
    status = run_to_end(run_script, recording.stop)
    if os.getpid() == process:  # this process is not a child that the script forked
        count = f"{recording.calls} {plural('call', recording.calls)}"
        if recording.fault is not None:
            verb = "is" if recording.calls == 1 else "are"
            say(f"record: {file} ends early, at most {count} {verb} in it: {recording.fault}", stderr)
        elif not recording.calls:
            say(
                f"record: 0 calls in {file}: the script made no call with pointers of a region; "
                "`python -m offload_args run --report` runs a NumPy program as it is",
                stderr,
            )
        else:
            say(f"record: {count} in {file}; `python -m offload_args replay {file}` runs them again", stderr)
    return status
