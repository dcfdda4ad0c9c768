"""The installation of a checkout for development: by the build alone if that gives the same files, else by pip."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
# A build that installs the files that the environment names, or fails.
CMAKE = """#!/bin/sh
echo "$@" >> "{folder}/calls"
case "$1" in --build) exit "$FAILS" ;; esac
for last; do :; done
for file in $FILES; do echo "$last/$file"; done > "{folder}/build/editable/install_manifest.txt"
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script in another checkout, whose pip only notes that it was called."""
    spec = importlib.util.spec_from_file_location("install_editable", ROOT / "scripts" / "install_editable.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    build = tmp_path / "build" / "editable"
    build.mkdir(parents=True)
    cmake = tmp_path / "cmake"
    cmake.write_text(CMAKE.format(folder=tmp_path))
    cmake.chmod(0o755)
    (build / "CMakeCache.txt").write_text(
        f"CMAKE_HOME_DIRECTORY:INTERNAL={tmp_path}\nPython_EXECUTABLE:PATH={sys.executable}\n"
        f"CMAKE_COMMAND:INTERNAL={cmake}\n"
    )
    run = subprocess.run

    def noted(command: list[str], **options: object) -> object:
        if "pip" not in command:
            return run(command, **options)  # type: ignore[call-overload]
        with (tmp_path / "calls").open("a") as file:
            print("pip", command[-1], file=file)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "BUILD", build)
    monkeypatch.setattr(module, "files_of_pip", lambda: {"offload_args/_core.so", "offload_args/cublas.py"})
    monkeypatch.setattr(module.subprocess, "run", noted)
    monkeypatch.setenv("FAILS", "0")
    monkeypatch.setenv("FILES", "offload_args/cublas.py offload_args/_core.so")
    return module


def calls(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, list[str]]:
    """Return the script's status, and the first word of each command that it ran."""
    monkeypatch.setattr(sys, "argv", ["install_editable.py", *arguments, "test,demo"])
    status = script.main()
    log = script.ROOT / "calls"
    return status, [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def test_the_build_suffices_if_it_installs_the_files_that_pip_did(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert calls(script, monkeypatch) == (0, ["--build", "--install"])


@pytest.mark.parametrize("files", ["offload_args/cublas.py", "offload_args/cublas.py offload_args/_core.so more.py"])
def test_pip_installs_if_the_build_has_other_files(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, files: str
) -> None:
    monkeypatch.setenv("FILES", files)
    assert calls(script, monkeypatch) == (0, ["--build", "--install", "pip"])


def test_a_build_that_fails_is_not_tried_again_by_pip(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "3")
    assert calls(script, monkeypatch) == (3, ["--build"])


def test_pip_installs_if_asked_or_if_nothing_is_installed_or_the_build_is_of_another_python(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert calls(script, monkeypatch, "--whole") == (0, ["pip"])
    monkeypatch.setattr(script, "files_of_pip", set)
    assert calls(script, monkeypatch) == (0, ["pip"] * 2)
    monkeypatch.setattr(script, "files_of_pip", lambda: {"offload_args/cublas.py"})
    cache = script.BUILD / "CMakeCache.txt"
    cache.write_text(cache.read_text().replace(sys.executable, "/another/python"))
    assert calls(script, monkeypatch) == (0, ["pip"] * 3)
