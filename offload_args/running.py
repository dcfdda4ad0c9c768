"""Runs a script to its end, as Python itself does, for commands that print a report afterwards."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import TextIO

__all__ = ["run_to_end", "say"]

_COMMAND = os.path.join(os.path.dirname(__file__), "command")
_RUNNERS = (
    *(os.path.join(_COMMAND, f"{name}.py") for name in ("script", "trace", "record", "run", "plan")),
    "<frozen runpy>",
)


def say(text: str, file: TextIO | None) -> None:
    """Print to a script's stderr; a closed stderr does not affect the exit status."""
    if file is None:
        return
    try:
        print(text, file=file, flush=True)
    except (AttributeError, OSError, ValueError):
        if file is sys.stderr:
            sys.stderr = None  # otherwise, Python would flush stderr at its end, and exit with another status


def run_to_end(run_script: Callable[[], object], stop: Callable[[], object]) -> int:
    """Run a script, wait for its threads, call stop, and return the script's exit status.

    An exception is printed as Python prints it, without the frames of this package.
    """
    import traceback

    status, me = 0, threading.current_thread()
    try:
        run_script()
    except SystemExit as leaving:
        code = leaving.code
        if code is not None and not isinstance(code, int):
            say(str(code), sys.stderr)
        status = 0 if code is None else code if isinstance(code, int) else 1
    except BaseException as error:
        rest = error.__traceback__
        while rest is not None and rest.tb_frame.f_code.co_filename in (__file__, *_RUNNERS):
            rest = rest.tb_next
        say("".join(traceback.format_exception(type(error), error, rest)).rstrip("\n"), sys.stderr)
        status = 1
    finally:
        try:
            # Executors end their threads in these callbacks. Python itself calls the callbacks before it waits for
            # threads. It would call a callback a second time if the callback were still in the list.
            ends: list[Callable[[], object]] = getattr(threading, "_threading_atexits", [])
            while ends:
                try:
                    ends.pop()()
                except Exception as error:  # Python, too, continues after an exception of a callback
                    say("".join(traceback.format_exception(error)).rstrip("\n"), sys.stderr)
            while others := [thread for thread in threading.enumerate() if thread is not me and not thread.daemon]:
                others[0].join()  # Python itself also does this at its end
        except KeyboardInterrupt:
            status = 1
        finally:
            stop()
    with contextlib.suppress(AttributeError, OSError, ValueError):  # the script may have closed stdout
        sys.stdout.flush()
    return status
