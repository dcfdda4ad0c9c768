"""`call` of a cffi function that returns a status: a failure raises an exception, and nothing is committed."""

from __future__ import annotations

import subprocess
from typing import Any, NoReturn

import cffi
import numpy as np
import pytest

from offload_args import In, call, errors, offload_args
from offload_args.embedding import cflags, declare_status, libs
from offload_args.errors import ArgumentError, ArgumentTypeError, ExtentError, LibraryError

SOURCE = """
#include <offload_args_blas.h>
/* Doubles n elements, and then `then` of them. */
int twice(oa_f64 *x, int64_t n, int64_t then) {
  OA_TRY(oa_blas_dscal(n, 2.0, x, 1));
  return oa_blas_dscal(then, 2.0, x, 1);
}
int twice_as_int(oa_f64 *x, int64_t n, int64_t then) { return twice(x, n, then); }
int again_as_int(oa_f64 *x, int64_t n, int64_t then) { return twice(x, n, then); }
/* A library of its own, with statuses of its own. */
enum mine_status { MINE_DONE = 3, MINE_SOON = 4, MINE_BROKEN = 5 };
enum mine_status triple(double *x, int64_t n, int answer) {
  for (int64_t i = 0; i < n; i++) x[i] *= 3;
  return (enum mine_status)answer;
}
double sum(const double *x, int64_t n) { return n ? x[0] + sum(x + 1, n - 1) : 0; }
"""
CDEF = """
typedef struct oa_f64 oa_f64;
enum oa_status { OA_OK };
enum oa_status twice(oa_f64 *x, int64_t n, int64_t then);
int twice_as_int(oa_f64 *x, int64_t n, int64_t then);
int again_as_int(oa_f64 *x, int64_t n, int64_t then);
enum mine_status { MINE_DONE = 3, MINE_SOON = 4, MINE_BROKEN = 5 };
enum mine_status triple(double *x, int64_t n, int answer);
double sum(const double *x, int64_t n);
"""


@pytest.fixture(scope="module")
def ffi() -> Any:
    ffi = cffi.FFI()
    ffi.cdef(CDEF)
    return ffi


@pytest.fixture(scope="module")
def mine(ffi: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("statuses") / "libmine.so"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", *cflags(), "-o", path, *libs()]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    return ffi.dlopen(str(path))


def test_a_failure_of_the_core_is_raised_and_commits_nothing(mine: Any, device: str) -> None:
    x = np.ones(4)
    assert call(mine.twice, x, 4, 2, device=device) == 0
    np.testing.assert_array_equal(x, [4, 4, 2, 2])
    with pytest.raises(ExtentError, match="dscal: x needs 9 elements"):
        call(mine.twice, x, 4, 9, device=device)
    np.testing.assert_array_equal(x, [4, 4, 2, 2])


def test_a_function_that_returns_a_status_as_a_number_is_declared(mine: Any, device: str) -> None:
    x = np.ones(4)
    assert call(mine.again_as_int, x, 4, 9, device=device) == errors._core.OA_ERROR_EXTENT  # a plain number
    np.testing.assert_array_equal(x, 2)
    declare_status(mine.twice_as_int, error=errors.raise_status)
    with pytest.raises(ExtentError, match="dscal: x needs 9 elements"):
        call(mine.twice_as_int, x, 4, 9, device=device)
    np.testing.assert_array_equal(x, 2)


def test_a_library_says_which_values_of_its_own_type_are_success(ffi: Any, mine: Any) -> None:
    declare_status(ffi.typeof("enum mine_status"), success=(mine.MINE_DONE, mine.MINE_SOON))
    x = np.ones(3)
    for answer in (mine.MINE_DONE, mine.MINE_SOON):
        assert call(mine.triple, x, 3, answer, device="host") == answer
    np.testing.assert_array_equal(x, 9)
    for answer, named in ((mine.MINE_BROKEN, "MINE_BROKEN"), (77, "77")):
        with pytest.raises(LibraryError, match=f"(triple|mine_status).* returned {named}, which is not success"):
            call(mine.triple, x, 3, answer, device="host")
    np.testing.assert_array_equal(x, 9)
    y = np.ones(3)
    with offload_args(x, device="host") as (dx,), pytest.raises(LibraryError):
        call(mine.triple, y, 3, mine.MINE_BROKEN, device="host")
        dx.fill(1)
    np.testing.assert_array_equal(y, 1)


def test_the_librarys_own_exception_is_raised(ffi: Any, mine: Any) -> None:
    class MineError(Exception):
        pass

    def fail(status: int) -> NoReturn:
        raise MineError(f"status {status}")

    declare_status(ffi.typeof("enum mine_status"), success=mine.MINE_DONE, error=fail)
    x = np.ones(3)
    with pytest.raises(MineError, match="status 5"):
        call(mine.triple, x, 3, mine.MINE_BROKEN, device="host")
    np.testing.assert_array_equal(x, 1)
    declare_status(ffi.typeof("enum mine_status"), success=mine.MINE_DONE, error=lambda status: None)
    with pytest.raises(LibraryError, match="MINE_BROKEN"):
        call(mine.triple, x, 3, mine.MINE_BROKEN, device="host")
    np.testing.assert_array_equal(x, 1)
    assert call(mine.sum, In(x), 3, device="host") == 3


def test_what_is_not_a_status_is_refused_by_name(ffi: Any, mine: Any) -> None:
    for wrong in (len, 3, None, "enum mine_status", ffi.new("int *"), ffi.typeof("int")):
        with pytest.raises(ArgumentTypeError, match="declare_status: function needs a function of a cffi library"):
            declare_status(wrong)
    with pytest.raises(ArgumentError, match="declare_status: success needs an integer"):
        declare_status(mine.twice_as_int, success=())
    with pytest.raises(ArgumentTypeError, match="declare_status: error needs a function"):
        declare_status(mine.twice_as_int, error=3)  # type: ignore[arg-type]
