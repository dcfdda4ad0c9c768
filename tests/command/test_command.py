"""`python -m offload_args`: the list of commands, their help, and completion by the shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import offload_args as package
from offload_args import command
from offload_args.command.script import tell_misplaced


def test_without_a_command_it_says_what_it_offers() -> None:
    ran = subprocess.run([sys.executable, "-m", "offload_args"], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0 and ran.stderr == ""
    for name in command.COMMANDS:
        assert f"\n    {name} " in ran.stdout
    assert "python -m offload_args COMMAND --help" in " ".join(ran.stdout.split())


@pytest.mark.parametrize("name", command.COMMANDS)
def test_each_command_has_help_that_says_what_it_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command.main([name, "--help"])
    assert left.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    assert words.startswith(f"usage: python -m offload_args {name} ")
    assert " ".join(command.COMMANDS[name].DESCRIPTION.split()).split(":")[0][:40] in words


def test_an_unknown_command_is_refused_with_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command.main(["inform"])
    assert left.value.code == 2 and "selftest" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "meant"), [("inof", "info"), ("replya", "replay"), ("zzz", "")])
def test_a_misspelt_command_is_refused_with_the_nearest_name(
    name: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main([name])
    said = capsys.readouterr().err.strip()
    assert said.endswith(f"; did you mean {meant}?" if meant else ")")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("info --device sim:0", "usage: python -m offload_args info .* arguments: --device sim:0; its options are "),
        ("run --reprot prog.py", "unrecognized arguments: --reprot; did you mean --report?"),
        ("selftest host", "unrecognized arguments: host; its options are --device, --every, --json"),
        ("help", "; write python -m offload_args --help"),
        ("version", "; write python -m offload_args --version"),
        ("profile script.py", "; did you mean trace?"),
        ("devices", "; did you mean info?"),
        ("script.py", "; did you mean python -m offload_args run script.py, .*or trace script.py"),
        ("run", "the following arguments are required: script$"),
        ("trace", "the following arguments are required: script$"),
        ("--verison", "unrecognized arguments: --verison"),
    ],
)
def test_arguments_that_a_command_lacks_are_refused_with_its_own_usage(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        command.main(arguments.split())
    said = " ".join(capsys.readouterr().err.split())
    assert left.value.code == 2 and re.search(words.replace("?", r"\?"), said), said


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command.main(["--version"])
    assert left.value.code == 0 and capsys.readouterr().out == f"offload_args {package.__version__}\n"


def test_a_device_that_is_lost_meanwhile_is_an_error_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(options: object) -> int:
        raise package.DeviceLostError("cuda:0: the device is lost")

    monkeypatch.setattr(command.info, "run", lost)
    assert command.main(["info"]) == 2
    assert capsys.readouterr().err == "python -m offload_args info: cuda:0: the device is lost\n"


def test_the_shell_completes_commands_where_argcomplete_is_here() -> None:
    environment = os.environ | {
        "_ARGCOMPLETE": "3",  # as for `python -m offload_args`: the words that name the program
        "COMP_LINE": "python -m offload_args sel",
        "COMP_POINT": "26",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": "/dev/stdout",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "offload_args"], capture_output=True, text=True, env=environment, timeout=300
    )
    assert ran.stdout.split() == (["selftest"] if find_spec("argcomplete") else []), ran.stderr


FULL = "the standard output can't be written: No space left on device"


@pytest.mark.later(but="config")
@pytest.mark.parametrize("arguments", ["info", "selftest --every 400 --device host", "config", "config --cflags"])
def test_a_full_disk_is_reported_and_a_reader_who_has_enough_is_not(arguments: str) -> None:
    command_line = [sys.executable, "-u", "-m", "offload_args", *arguments.split()]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(command_line, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert ran.returncode == 2 and ran.stderr == f"python -m offload_args {arguments.split(' ')[0]}: {FULL}\n"
    reads, writes = os.pipe()
    os.close(reads)
    ran = subprocess.run(command_line, stdout=writes, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(writes)
    assert ran.returncode == 0 and ran.stderr == ""


@pytest.mark.parametrize(
    ("text", "arguments", "told"),
    [
        ("", "--device sim:0 --report", "--device, --report go to the script; options of offload_args go before it"),
        ("", "--json=x", "--json=x"),
        ("", "--other --report", ""),
        ("", "input --report", ""),
        ("# has --report", "--report", ""),
    ],
)
def test_options_behind_the_script_are_told_unless_they_are_the_scripts(
    text: str, arguments: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    options = command.parser().parse_args(["run", str(script), *arguments.split()])
    tell_misplaced(command.parser().by_command["run"], options)
    said = capsys.readouterr().err
    assert told in said and bool(told) == bool(said)
    if told:
        assert said.rstrip().endswith(f"python -m offload_args run {arguments} {script}")


@pytest.mark.later
def test_a_recording_without_calls_names_the_command_for_numpy_programs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import numpy as np\nnp.ones((3, 3)) @ np.ones(3)\n")
    command_line = [sys.executable, "-m", "offload_args", "record", "-o", tmp_path / "r.jsonl.gz", script]
    ran = subprocess.run(command_line, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0 and "record: 0 calls in " in ran.stderr
    assert "`python -m offload_args run --report` runs a NumPy program as it is" in ran.stderr


@pytest.mark.parametrize("arguments", ["--device host", "--dtype f8"])
def test_the_plan_of_a_script_refuses_what_it_does_not_use(
    arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit('ran')")
    assert command.main(["plan", *arguments.split(), str(script)]) == 2
    assert f"{arguments.split()[0]} is for M N K" in capsys.readouterr().err
