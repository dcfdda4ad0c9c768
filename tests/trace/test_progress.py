"""OFFLOAD_ARGS_PROGRESS and trace(progress=...): a line on the terminal about long operations."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from offload_args import ArgumentError, trace
from offload_args.tracing import process

# Each operation of the device is slow: a copy of 8 MiB takes 0.4 s.
DEVICE = """\
import os, sys, threading, time
import numpy as np
from offload_args import In, blas, offload_args, testing, trace

device = testing.sim_device(delay_us=30_000)
Big = np.ones(1 << 20)

def seen():
    return os.path.exists(sys.path[0] + "/seen")

"""
# Make copies up, one after the other, until the test has seen the expected line. On a busy machine a copy may be
# missed.
COPIES = """\
for _ in range(1000):
    with offload_args(In(Big), device=device) as (dBig,):
        blas.asum(dBig)
    if seen():
        break
"""
SLOW = DEVICE + COPIES
# The copy is on another thread, and the block ends during the copy.
ELSEWHERE = """\
for _ in range(1000):
    with offload_args(In(Big), device=device) as (dBig,):
        thread = threading.Thread(target=blas.asum, args=(dBig,), daemon=True)
        thread.start()
        while thread.is_alive() and not seen():
            time.sleep(0.01)
        if not seen():
            continue
"""


def on_terminal(
    folder: Path, text: str, *, until: str = "", interrupted: bool = False, **environment: str
) -> tuple[str, int]:
    """Run a script with a terminal as its stdout and stderr; return the shown text and the exit status.

    `until` is a pattern in the shown text. After a match, the script's seen() is true, or, with `interrupted`, Ctrl-C
    is sent.
    """
    script, seen = folder / "script.py", folder / "seen"
    script.write_text(text)
    if not until:
        seen.touch()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OFFLOAD_ARGS_")}
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=terminal, stdout=terminal, stderr=terminal, env=clean | environment
    ) as ran:
        os.close(terminal)
        shown = b""
        while True:
            try:
                part = os.read(controller, 4096)
            except OSError:  # the last program closed the terminal
                break
            if not part:
                break
            shown += part
            if until and re.search(until, shown.decode(errors="replace")):
                until = ""
                if interrupted:
                    ran.send_signal(signal.SIGINT)
                else:
                    seen.touch()
        status = ran.wait(timeout=300)
    os.close(controller)
    return shown.decode(), status


def screen(shown: str) -> list[str]:
    """Return the lines of a terminal that has received this text."""
    lines = [""]
    column = 0
    for letter in shown.replace("\r\n", "\n"):
        if letter == "\n":
            lines.append("")
        if letter in "\r\n":
            column = 0
        else:
            lines[-1] = lines[-1][:column] + letter + lines[-1][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def test_a_copy_that_takes_long_is_shown_and_the_line_is_gone_afterwards(tmp_path: Path) -> None:
    text = "offload_args: Big up to sim:0: "
    shown, status = on_terminal(tmp_path, SLOW + "print('done')\n", until=text, OFFLOAD_ARGS_PROGRESS="0.1")
    assert status == 0 and text in shown, shown
    assert screen(shown) == ["done", ""]


@pytest.mark.later
def test_a_wait_that_takes_long_is_shown_with_its_reason(tmp_path: Path) -> None:
    queued = "    for _ in range(12):\n            dBig.fill(0)\n        device.synchronize()"
    script = SLOW.replace("In(Big)", "Big").replace("    blas.asum(dBig)", queued)
    shown, status = on_terminal(tmp_path, script, until=r"waiting for sim:0 \(", OFFLOAD_ARGS_PROGRESS="0.1")
    assert status == 0 and "offload_args: waiting for sim:0 (" in shown, shown
    assert screen(shown) == [""]


@pytest.mark.slow
def test_a_trace_with_progress_shows_its_own_block_only(tmp_path: Path) -> None:
    before = "".join(line.removeprefix("    ") for line in COPIES.splitlines(keepends=True)[1:3])
    body = "".join(f"    {line}" for line in COPIES.splitlines(keepends=True))
    script = f"{DEVICE}{before}print('then')\nwith trace(progress=0.1):\n{body}"
    shown, status = on_terminal(tmp_path, script, until="Big up to sim:0")
    before, _, after = shown.partition("then")
    assert status == 0 and before == "" and "offload_args: Big up to sim:0" in after, shown


@pytest.mark.parametrize("seconds", ["0", pytest.param("50", marks=pytest.mark.slow)])
def test_nothing_is_shown_unless_wanted_or_if_nothing_takes_that_long(tmp_path: Path, seconds: str) -> None:
    assert on_terminal(tmp_path, SLOW, OFFLOAD_ARGS_PROGRESS=seconds) == ("", 0)


@pytest.mark.later
@pytest.mark.parametrize("stderr", ["open('/dev/null', 'w')", pytest.param("None", marks=pytest.mark.slow)])
def test_nothing_is_shown_where_stderr_is_not_a_terminal(tmp_path: Path, stderr: str) -> None:
    script = f"import sys\nsys.stderr = {stderr}\n{SLOW}"
    assert on_terminal(tmp_path, script, OFFLOAD_ARGS_PROGRESS="0.1") == ("", 0)


@pytest.mark.later
def test_the_traceback_of_ctrl_c_is_whole(tmp_path: Path) -> None:
    shown, status = on_terminal(tmp_path, SLOW, until="Big", interrupted=True, OFFLOAD_ARGS_PROGRESS="0.1")
    lines = screen(shown)
    assert status != 0 and lines[-2] == "KeyboardInterrupt", shown
    assert any(line.startswith("Traceback (most recent call last):") for line in lines), shown


@pytest.mark.slow
def test_a_forked_child_shows_nothing_and_ends(tmp_path: Path) -> None:
    script = (
        DEVICE
        + ELSEWHERE
        + """\
        child = os.fork()
        if not child:
            time.sleep(0.5)
            print("child")
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
        break
"""
    )
    shown, status = on_terminal(tmp_path, script, until="Big up to sim:0", OFFLOAD_ARGS_PROGRESS="0.1")
    assert status == 0 and "Big up to sim:0" in shown and "child" in shown


@pytest.mark.slow
def test_regions_of_several_threads_share_the_line(tmp_path: Path) -> None:
    script = (
        DEVICE
        + """
def work(part):
    with offload_args(In(part), device=device) as (d,):
        blas.asum(d)

for _ in range(1000):
    threads = [threading.Thread(target=work, args=(part,)) for part in np.split(Big, 4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if seen():
        break
"""
    )
    others = "and (1 other|[23] others)"
    shown, status = on_terminal(tmp_path, script, until=others, OFFLOAD_ARGS_PROGRESS="0.1")
    assert status == 0 and re.search(others, shown), shown
    assert screen(shown) == [""]


@pytest.mark.later
def test_a_process_that_ends_within_a_copy_leaves_no_line(tmp_path: Path) -> None:
    script = DEVICE + ELSEWHERE + "        sys.exit(3)\n"
    shown, status = on_terminal(tmp_path, script, until="Big up to sim:0", OFFLOAD_ARGS_PROGRESS="0.1")
    assert status == 3 and "Big up to sim:0" in shown and screen(shown) == [""], shown


@pytest.mark.parametrize("text", ["yes", "-1", "inf", "nan"])
def test_a_value_that_is_no_time_is_a_warning(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OFFLOAD_ARGS_PROGRESS", text)
    with pytest.warns(RuntimeWarning, match=f"after which to show something, such as 1, got '{text}'"):
        process.start_from_environment()


@pytest.mark.parametrize("value", ["1", -1, float("nan"), None])
def test_trace_refuses_a_progress_that_is_no_time(value: object) -> None:
    with pytest.raises(ArgumentError, match="trace: progress needs True, False, or the seconds"):
        trace(progress=value)  # type: ignore[arg-type]


@pytest.mark.slow
def test_bars_are_tqdms_where_it_is_installed(tmp_path: Path) -> None:
    folder = tmp_path / "tqdm"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "class tqdm:\n"
        "    @staticmethod\n"
        "    def format_meter(n, total, elapsed, *, prefix, **rest):\n"
        "        return f'{prefix}: tqdm {n // (1 << 20)} of {total // (1 << 20)} {sorted(rest)}'\n"
    )
    text = "offload_args: Big up to sim:0: tqdm "
    shown, status = on_terminal(tmp_path, SLOW, until=text, OFFLOAD_ARGS_PROGRESS="0.1", PYTHONPATH=str(tmp_path))
    assert status == 0 and text in shown and "['ascii', 'ncols', " in shown, shown
