"""Python code runs while C code of its thread has a call open. Operations that would wait for the call are refused."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable

import numpy as np
import pytest

from offload_args import ArgumentError, DevicePtr, _core, offload_args, update
from offload_args.embedding import cflags, libs

DURING = """
#include <offload_args.h>
#include <offload_args/shim.h>
#include <unistd.h>
/* Calls what() between oa_begin and oa_end of a call that reads n elements; 20 s at most. */
int during(const void *pointer, int64_t n, void (*what)(void)) {
  oa_operand x = oa_operand_of("x", pointer, OA_READ, OA_F64, OA_ELEMENTS(n));
  oa_call call = oa_call_of("test.during", NULL, &x, 1);
  const int status = oa_begin(&call);
  if (status) return status;
  alarm(300);
  what();
  alarm(0);
  return oa_end(&call, 0);
}
"""
OPEN = "a call of this thread is still open and holds .*end it first"
During = Callable[[DevicePtr[np.float64], Callable[[], object]], None]


@pytest.fixture(scope="module")
def during(tmp_path_factory: pytest.TempPathFactory) -> During:
    path = tmp_path_factory.mktemp("during") / "during.so"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", *cflags(), "-o", path, *libs()]
    subprocess.run(command, input=DURING, text=True, check=True)
    function = ctypes.CDLL(str(path)).during
    kind = ctypes.CFUNCTYPE(None)

    def call(pointer: DevicePtr[np.float64], case: Callable[[], object]) -> None:
        raised: list[BaseException] = []

        def caught() -> None:
            try:
                case()
            except BaseException as error:
                raised.append(error)

        callback = kind(caught)
        status = function(ctypes.c_void_p(_core.handle(pointer)), ctypes.c_int64(pointer.size), callback)
        assert status == 0
        if raised:
            raise raised[0]

    return call


def test_a_callback_cannot_leave_the_region_that_its_own_call_uses(during: During, device: str) -> None:
    x = np.ones(4)
    region = offload_args(x, device=device)
    (dx,) = region.__enter__()
    dx.fill(2.0)
    for leave in (region.close, region.discard, lambda: region.__exit__(None, None, None)):
        with pytest.raises(ArgumentError, match=OPEN):
            during(dx, leave)
        assert not x.flags.writeable  # the region is still open
    dx[:2].fill(3.0)
    region.close()
    assert x.tolist() == [3, 3, 2, 2]


def test_a_body_that_raises_keeps_its_error_where_the_region_cannot_be_left(during: During, device: str) -> None:
    x = np.ones(4)
    region = offload_args(x, device=device)
    (dx,) = region.__enter__()
    body = ValueError("of the body")
    during(dx, lambda: region.__exit__(ValueError, body, None))
    assert "a call of this thread is still open" in body.__notes__[0]
    region.close()


def test_a_callback_cannot_update_what_its_own_call_uses(during: During, device: str) -> None:
    x = np.ones(4)
    with offload_args(x, device=device) as (dx,):
        dx.fill(2.0)
        with pytest.raises(ArgumentError, match=OPEN):
            during(dx, lambda: update(x))
        during(dx, lambda: dx.device.release(x))
        update(x)
        assert x[3] == 2


def test_a_callback_may_do_anything_else_with_its_array(during: During, device: str) -> None:
    x = np.ones(4)
    results = []
    with offload_args(x, device=device) as (dx,):

        def nested() -> None:
            with offload_args(x, device=device) as (again,):
                results.append(again.to_host()[0])

        during(dx, nested)
    assert results == [1]
