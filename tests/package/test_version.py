"""The version of a release, of a checkout between releases, and of copies of both."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.processes import program_or_skip
from offload_args import __version__

ROOT = Path(__file__).parents[2]
HEADER = "csrc/include/offload_args/core.h"
SCRIPT = "scripts/package_version.py"
NUMBER = __version__.partition(".dev")[0]


def git(folder: Path, *arguments: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = (
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@example.org",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "tag.gpgsign=false",
    )
    run = subprocess.run(["git", *who, *arguments], cwd=folder, env=plain, capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder without git that has the sources which determine the version."""
    folder = tmp_path / "copy"
    for name in (HEADER, SCRIPT):
        (folder / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture
def checkout(copy: Path) -> Path:
    """The folder `copy` with a git commit."""
    program_or_skip("git")
    (copy / ".gitattributes").write_text(f"{SCRIPT} export-subst\n")
    git(copy, "init", "-q")
    git(copy, "add", ".")
    git(copy, "commit", "-q", "-m", "First")
    return copy


def version(folder: Path) -> str:
    run = subprocess.run([sys.executable, folder / SCRIPT], cwd="/", capture_output=True, text=True, check=True)
    return run.stdout.strip()


def commit_of(folder: Path) -> str:
    return git(folder, "rev-parse", "--short=8", "HEAD")


def test_the_package_says_the_version_of_its_metadata() -> None:
    assert __version__ == importlib.metadata.version("offload-args")
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0(\+g[0-9a-f]+(\.dirty)?)?)?", __version__)
    assert f"/* {NUMBER} */" in (ROOT / HEADER).read_text()


def test_a_copy_without_git_is_a_development_version_without_commit(copy: Path) -> None:
    assert version(copy) == f"{NUMBER}.dev0"


def test_a_source_archive_has_the_version_that_it_was_made_with(copy: Path) -> None:
    for written in (NUMBER, f"{NUMBER}.dev0+g01234567"):
        (copy / "PKG-INFO").write_text(f"Metadata-Version: 2.4\nName: offload-args\nVersion: {written}\n")
        assert version(copy) == written
    (copy / "PKG-INFO").write_text("Metadata-Version: 2.4\nVersion: 0.0.1\n")  # it belongs to other sources
    assert version(copy) == f"{NUMBER}.dev0"


def test_a_checkout_names_its_commit_and_whether_it_was_changed(checkout: Path) -> None:
    assert version(checkout) == f"{NUMBER}.dev0+g{commit_of(checkout)}"
    (checkout / "notes.txt").write_text("not a file of the checkout")
    assert version(checkout) == f"{NUMBER}.dev0+g{commit_of(checkout)}"
    with open(checkout / HEADER, "a") as header:
        header.write("\n")
    assert version(checkout) == f"{NUMBER}.dev0+g{commit_of(checkout)}.dirty"


@pytest.mark.later
def test_a_tagged_commit_is_the_release_and_its_clone_too(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "tag", "v9.9.9")
    assert version(checkout) != NUMBER
    git(checkout, "tag", "-m", "Release", f"v{NUMBER}")
    assert version(checkout) == NUMBER
    git(tmp_path, "clone", "-q", "--branch", f"v{NUMBER}", "--depth", "1", f"file://{checkout}", "clone")
    assert version(tmp_path / "clone") == NUMBER
    git(checkout, "commit", "-q", "--allow-empty", "-m", "Second")
    assert version(checkout) == f"{NUMBER}.dev0+g{commit_of(checkout)}"


def test_an_archive_by_git_is_what_its_commit_is(checkout: Path, tmp_path: Path) -> None:
    def archived(name: str) -> str:
        (tmp_path / name).mkdir()
        git(checkout, "archive", "--output", str(tmp_path / f"{name}.tar"), "HEAD")
        subprocess.run(["tar", "-xf", tmp_path / f"{name}.tar", "-C", tmp_path / name], check=True)
        return version(tmp_path / name)

    commit = git(checkout, "rev-parse", "--short", "HEAD")
    assert archived("between") == f"{NUMBER}.dev0+g{commit}"
    git(checkout, "tag", f"v{NUMBER}")
    assert archived("released") == NUMBER


def test_a_copy_inside_the_checkout_of_something_else_does_not_take_its_commit(checkout: Path) -> None:
    inside = checkout / "third_party"
    for name in (HEADER, SCRIPT):
        (inside / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, inside / name)
    assert version(inside) == f"{NUMBER}.dev0"
