"""T73: two copies of the library in one process. The second copy is refused, whichever copy is first."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helpers.processes import python
from offload_args import get_library

OTHER = """
import ctypes
import numpy as np
copy = ctypes.CDLL({copy!r})
copy.oa_last_error.restype = ctypes.c_char_p
device = ctypes.c_int()
def use():
    return copy.oa_device_open(b"sim:0", ctypes.byref(device)), copy.oa_last_error().decode()
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library with another soname, because the system's loader treats files of one soname as the same library."""
    library = Path(get_library())
    path = tmp_path_factory.mktemp("copies") / "liboffload_args_copy.so"
    path.write_bytes(library.read_bytes().replace(library.name.encode(), library.name[:-1].encode() + b"x"))
    return str(path)


def run(code: str) -> str:
    ran = python(code)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    return ran.stdout


@pytest.mark.promise("T73")
def test_a_copy_beside_the_library_of_python_is_refused_when_it_is_used(copy: str) -> None:
    said = run(f"""{OTHER.format(copy=copy)}
from offload_args import _core, offload_args
x = np.ones(4)
with offload_args(x, device="sim:0") as (dx,):
    for _ in range(2):
        status, text = use()
        assert status == _core.OA_ERROR_VERSION, (status, text)
        assert "two copies of offload_args are in this process" in text
    assert copy.oa_check_version(copy.oa_version()) == status
    dx.fill(2)
assert (x == 2).all()
print(text)
""")
    assert f"{get_library()} is in use, and {copy} can't be used beside it" in said


@pytest.mark.promise("T73")
def test_the_package_is_not_imported_beside_a_copy_that_is_in_use(copy: str) -> None:
    said = run(f"""{OTHER.format(copy=copy)}
assert use()[0] == 0, use()
try:
    import offload_args
except ImportError as error:
    print(error)
assert use()[0] == 0
""")
    assert f"{copy} is in use, and {get_library()} can't be used beside it" in said


@pytest.mark.promise("T73")
def test_a_copy_that_is_loaded_and_never_used_is_in_no_way(copy: str) -> None:
    run(f"""{OTHER.format(copy=copy)}
from offload_args import offload_args
x = np.ones(4)
with offload_args(x, device="sim:0") as (dx,):
    dx.fill(2)
assert (x == 2).all() and use()[0] != 0
""")


@pytest.mark.promise("T73")
def test_a_copy_of_the_same_soname_that_is_loaded_first_is_the_one_library(tmp_path: Path) -> None:
    same = shutil.copy(get_library(), tmp_path / "liboffload_args_same.so")
    run(f"""{OTHER.format(copy=str(same))}
assert use()[0] == 0
from offload_args import Device, offload_args
x = np.ones(4)
with offload_args(x, device="sim:0"):
    number = device.value
    assert copy.oa_is_present(ctypes.c_void_p(x.ctypes.data), ctypes.c_int64(32), number) == 1
""")
