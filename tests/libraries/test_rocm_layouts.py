"""ROCm's libraries are found in old and new trees and in Python packages, and never in the working directory."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from helpers.processes import printed
from offload_args import get_include, libraries

TELL = """
from offload_args import libraries
tried = []
for candidate in libraries._candidates("rocblas", tried):
    print(candidate.path)
print("tried", *tried, sep="|")
"""

WHY_NO_HIP = """
from offload_args import Device
from offload_args.errors import OffloadError
try:
    Device("hip:0")
except OffloadError as error:
    print(error)
"""

WHY_NO_COMPILER = """
from offload_args import InOut, Kernel
from offload_args.errors import LibraryError
try:
    Kernel.compile("", "none", [InOut], target="gfx90a")
except LibraryError as error:
    print(error)
"""

FROM_C = """
import ctypes
core, count = ctypes.CDLL({path!r}), ctypes.c_int()
core.oa_last_error.restype = ctypes.c_char_p
assert core.oa_device_count(b"hip", ctypes.byref(count)) == 0
print("hip devices" if count.value else core.oa_last_error().decode())
"""


def put(*parts: str | Path, name: str = "librocblas.so.5") -> str:
    """Make an empty file with this name in a folder and return its path."""
    folder = Path(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    return str(folder / name)


def places(tmp_path: Path, **environment: str) -> tuple[list[str], str]:
    """Return the files that would be loaded, in order, and the searched places that had no file."""
    code = f"import os; os.chdir({str(tmp_path / 'here')!r})\n{TELL}"
    (tmp_path / "here").mkdir(exist_ok=True)
    *results, tried = printed(code, OFFLOAD_ARGS_ROCBLAS="", **environment).splitlines()
    return [path for path in results if path.startswith(str(tmp_path))], tried


def test_a_tree_of_the_old_layout_is_found(tmp_path: Path) -> None:
    there = put(tmp_path, "rocm", "lib")
    actual, _ = places(tmp_path, ROCM_PATH=str(tmp_path / "rocm"))
    assert actual == [there]


@pytest.mark.later
def test_of_trees_with_versions_the_newest_comes_first(tmp_path: Path) -> None:
    older, newer = (put(tmp_path, "rocm", f"core-{version}", "lib") for version in ("7.14", "10.2"))
    actual, tried = places(tmp_path, ROCM_PATH=str(tmp_path / "rocm"))
    assert actual == [newer, older]
    assert "|$ROCM_PATH/lib: no librocblas.so.5" in tried


@pytest.mark.later
def test_packages_of_python_come_before_folders(tmp_path: Path) -> None:
    package = put(tmp_path, "site", "_rocm_sdk_libraries_gfx94X_dcgpu", "lib")
    put(tmp_path, "site", "_rocm_sdk_core", "lib", name="libamdhip64.so.7")
    folder = put(tmp_path, "rocm", "lib")
    actual, tried = places(tmp_path, PYTHONPATH=str(tmp_path / "site"), ROCM_PATH=str(tmp_path / "rocm"))
    assert actual == [package, folder]
    assert "rocm.bindings.util.paths.get_library_path: " in tried and "rocm_sdk.find_libraries: " in tried


@pytest.mark.later
@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("rocm/bindings/util/paths.py", "def get_library_path(shortname): return {path!r}.encode()"),
        ("rocm_sdk/__init__.py", "from pathlib import Path\ndef find_libraries(*names): return [Path({path!r})]"),
    ],
)
def test_amds_own_finders_are_asked_first(tmp_path: Path, module: str, text: str) -> None:
    there = put(tmp_path, "elsewhere")
    package = put(tmp_path, "site", "_rocm_sdk_libraries", "lib")
    finder = tmp_path / "site" / module
    finder.parent.mkdir(parents=True)
    finder.write_text(text.format(path=there))
    actual, _ = places(tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert actual == [there, package]


@pytest.mark.later
def test_the_working_directory_is_never_searched(tmp_path: Path) -> None:
    for folder in ("lib", "core-10.2/lib", "_rocm_sdk_libraries/lib", "."):
        put(tmp_path, "here", folder)
    actual, tried = places(tmp_path, ROCM_PATH=".", PYTHONPATH=str(tmp_path / "here"), LD_LIBRARY_PATH=".")
    assert actual == []
    for place in ("$ROCM_PATH/lib", "/opt/rocm/core-*/lib", "/opt/rocm-*/lib", "rocm-sdk-libraries", "linker"):
        assert place in tried


@pytest.mark.later
def test_a_major_version_that_is_not_known_is_refused_with_its_remedy(tmp_path: Path) -> None:
    newer = put(tmp_path, "rocm", "lib", name="librocblas.so.6.1.2")
    (tmp_path / "rocm" / "lib" / "librocblas.so").symlink_to(newer)
    code = "from offload_args import libraries; print(libraries.find_and_open('rocblas'))"
    said = printed(code, ROCM_PATH=str(tmp_path / "rocm"))
    assert "librocblas.so ($ROCM_PATH/lib): has major version 6, and this package knows 0, 3, 4, 5; " in said
    assert "set OFFLOAD_ARGS_ROCBLAS to this path to take it all the same" in said
    said = printed(code, OFFLOAD_ARGS_ROCBLAS=newer)
    assert "major version" not in said and "librocblas.so.6.1.2 (environment variable OFFLOAD_ARGS_ROCBLAS): " in said


def test_every_place_tried_is_in_the_error() -> None:
    tried = libraries.find_and_open("rocblas") if sys.platform == "linux" else ""
    if tried:  # this machine has no rocBLAS
        for place in ("rocm_sdk.find_libraries", "rocm-sdk-libraries", "/opt/rocm/core-*/lib", "/opt/rocm-*/lib"):
            assert place in tried


def put_runtime(*parts: str | Path) -> str:
    """Make a file with the name of HIP's runtime that can't be loaded, so that the error names the first file tried."""
    path = put(*parts, name="libamdhip64.so.7")
    Path(path).write_text("no library")
    return path


def why_no_hip(site: Path, **environment: str) -> str:
    """Return the reason why there is no HIP device, or "" if the system has a working runtime."""
    return printed(WHY_NO_HIP, PYTHONPATH=str(site), LD_LIBRARY_PATH="", **environment)


@pytest.mark.later
def test_hip_is_found_in_any_site_folder_of_this_python(tmp_path: Path) -> None:
    there = put_runtime(tmp_path, "site", "_rocm_sdk_core", "lib")
    put_runtime(tmp_path, "rocm", "lib")
    said = why_no_hip(tmp_path / "site", ROCM_PATH=str(tmp_path / "rocm"))
    assert not said or f"libamdhip64.so.7 could not be loaded: {there}: " in said


@pytest.mark.later
@pytest.mark.parametrize("raised", ["ModuleNotFoundError('none')", "UnboundLocalError('none')", None])
def test_amds_own_finder_is_asked_for_hip(tmp_path: Path, raised: str | None) -> None:
    there = put_runtime(tmp_path, "elsewhere")
    package = put_runtime(tmp_path, "site", "_rocm_sdk_core", "lib")
    (tmp_path / "site" / "rocm_sdk.py").write_text(
        "from pathlib import Path\ndef find_libraries(*names):\n"
        f"    assert names == ('amdhip64',)\n    {f'raise {raised}' if raised else f'return [Path({there!r})]'}\n"
    )
    said = why_no_hip(tmp_path / "site")
    assert not said or f"libamdhip64.so.7 could not be loaded: {package if raised else there}: " in said
    assert not said or not raised or "rocm_sdk.find_libraries: none" in said


@pytest.mark.later
def test_the_error_names_every_place_where_hip_may_be(tmp_path: Path) -> None:
    said = why_no_hip(tmp_path, ROCM_PATH=str(tmp_path / "rocm"))
    places = ["rocm_sdk.find_libraries: ", "rocm-sdk-core: ", f"{tmp_path}/rocm/lib; ", f"{tmp_path}/rocm/core-*/lib; "]
    places += ["/opt/rocm/lib; ", "/opt/rocm/core-*/lib; ", "/opt/rocm-*/lib; ", "where the system looks)"]
    assert not said or [place for place in places if place not in said] == []


@pytest.mark.parametrize("tree", ["site/_rocm_sdk_core/lib", "rocm/lib", "rocm/core-10.2/lib"])
def test_a_program_without_the_package_finds_hip(tmp_path: Path, tree: str) -> None:
    there = put_runtime(tmp_path, tree)
    (tmp_path / "site" / "offload_args").mkdir(parents=True)
    (core,) = Path(get_include()).parent.glob("liboffload_args.so.*")
    path = shutil.copy(core, tmp_path / "site" / "offload_args")
    said = printed(FROM_C.format(path=str(path)), ROCM_PATH=str(tmp_path / "rocm"), LD_LIBRARY_PATH="").strip()
    assert said == "hip devices" or f"libamdhip64.so.7 could not be loaded: {there}: " in said


def test_nothing_looks_for_hip_before_it_is_asked_for() -> None:
    code = "import sys, offload_args; offload_args.Device('sim:0'); print('offload_args.libraries' in sys.modules)"
    assert printed(code, OFFLOAD_ARGS_INFO="").strip() == "False"


@pytest.mark.later
@pytest.mark.parametrize("name", ["libhiprtc.so.7", "libamdhip64.so.7"])
@pytest.mark.parametrize(
    "tree", ["site/_rocm_sdk_core/lib", "elsewhere", "rocm/lib", "rocm/core-10.2/lib", "site/_rocm_sdk_core_7/lib"]
)
def test_hiprtc_is_found_where_hip_is(tmp_path: Path, tree: str, name: str) -> None:
    """T70. HIP and hiprtc are searched in the same places."""
    there = put(tmp_path, tree, name=name)
    Path(there).write_text("no library")
    if tree == "elsewhere":
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "rocm_sdk.py").write_text(
            "from pathlib import Path\ndef find_libraries(name):\n"
            f"    if name not in {name!r}: raise FileNotFoundError(name)\n    return [Path({there!r})]\n"
        )
    environment = {"ROCM_PATH": str(tmp_path / "rocm"), "PYTHONPATH": str(tmp_path / "site"), "LD_LIBRARY_PATH": ""}
    said = printed(WHY_NO_COMPILER, OFFLOAD_ARGS_HIPRTC="", **environment)
    assert not said or f"{there}: " in said
    assert not said or "rocm-sdk-core" in said or tree.startswith("site")


def test_c_and_python_know_the_same_folders_of_rocm() -> None:
    """T70. C code searches for HIP's runtime, and Python code searches for hiprtc and rocBLAS."""
    source = (Path(__file__).parents[2] / "csrc" / "backends" / "hip.c").read_text()
    table = source.split("places[][2] = {")[1].split("};")[0]
    pairs = re.findall(r'\{(\w+|"[^"]+"), "([^"]+)"\}', table)
    known = {"rocm": "$ROCM_PATH", '"/opt/rocm"': "/opt/rocm", '"/opt"': "/opt"}  # not the package's own
    folders = [f"{known[root]}{inside}" for root, inside in pairs if root in known]
    assert folders == list(libraries._FACTS["rocblas"].folders)
