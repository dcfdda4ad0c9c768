"""cuBLASLt's descriptors, with the library itself but without a GPU.

OFFLOAD_ARGS_CUBLASLT may name the library's file.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.devices import library_or_skip
from helpers.memory import check_no_leak
from offload_args import _core, cublaslt
from offload_args.dtypes import C_NAMES, dtype_of
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    LibraryError,
    SizeOverflowError,
    StalePointerError,
)

MATRIX = np.zeros((5, 7), np.float16)
KINDS = sorted(set(_core.object_kinds("cublaslt")) - {"Handle"})


@pytest.fixture(autouse=True)
def loaded() -> None:
    library_or_skip("cublaslt", "descriptors")


def descriptor_of(kind: str) -> Any:
    arguments = {
        "MatrixLayout": (cublaslt.CUDA_R_32F, 5, 7, 5),
        "MatmulDesc": (cublaslt.COMPUTE_32F, cublaslt.CUDA_R_32F),
        "MatrixTransformDesc": (cublaslt.CUDA_R_32F,),
    }
    stem, _ = cublaslt._ATTRIBUTES[kind]
    return getattr(cublaslt, f"{stem}_create")(*arguments.get(kind, ()))


def has(descriptor: Any, name: str) -> bool:
    """Return whether the loaded version has an attribute; a version older than the api file may lack some."""
    try:
        getattr(descriptor, name)
    except LibraryError:
        assert cublaslt.get_version() < 131000, name
        return False
    return True


@pytest.mark.parametrize(
    ("array", "order", "shape", "ld", "batch"),
    [
        (MATRIX, cublaslt.ORDER_ROW, (5, 7), 7, (1, 0)),
        (MATRIX.T, cublaslt.ORDER_COL, (7, 5), 7, (1, 0)),
        (MATRIX[::2, :3], cublaslt.ORDER_ROW, (3, 3), 14, (1, 0)),
        (np.zeros((4, 5, 7), np.float64), cublaslt.ORDER_ROW, (5, 7), 7, (4, 35)),
        (np.zeros((4, 5, 7), np.int8).swapaxes(1, 2), cublaslt.ORDER_COL, (7, 5), 7, (4, 35)),
    ],
)
def test_a_layout_has_the_order_shape_and_batch_of_its_array(
    array: Any, order: int, shape: Any, ld: int, batch: Any
) -> None:
    layout = cublaslt.layout(array)
    assert (layout.order, (layout.rows, layout.cols), layout.ld) == (order, shape, ld)
    assert (layout.batch_count, layout.strided_batch_offset) == batch


@pytest.mark.parametrize("kind", KINDS)
def test_every_attribute_has_the_size_of_its_dtype(kind: str) -> None:
    """The table in the roles file is compared with the library."""
    stem, facts = cublaslt._ATTRIBUTES[kind]
    get = getattr(cublaslt, f"{stem}_get_attribute")
    descriptor = descriptor_of(kind)
    for name, (code, dtype) in facts.items():
        if has(descriptor, name):
            assert get(descriptor, code, None, 0) == dtype_of(C_NAMES.index(dtype)).itemsize, name


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_that_are_set_come_back(kind: str) -> None:
    descriptor = descriptor_of(kind)
    for name, (_, dtype) in cublaslt._ATTRIBUTES[kind][1].items():
        if not has(descriptor, name):
            continue
        before = getattr(descriptor, name)
        assert isinstance(before, float if dtype == "f32" else int), name
        setattr(descriptor, name, before)
        assert getattr(descriptor, name) == before, name


def test_an_object_among_the_attributes_lives_as_long() -> None:
    desc = descriptor_of("MatmulDesc")
    desc.emulation_descriptor = descriptor_of("EmulationDesc")
    gc.collect()
    assert desc.emulation_descriptor.strategy == 0
    assert cublaslt.MatmulDesc.epilogue.__doc__ == "The attribute epilogue, uint32."


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: cublaslt.layout(MATRIX[:, ::2]), ArgumentError, "needs rows or columns without gaps"),
        (lambda: cublaslt.layout(MATRIX[::-1]), ArgumentError, "needs strides of 0 or more whole elements"),
        (lambda: cublaslt.layout(MATRIX[0]), ArgumentError, "needs 2 axes, or 3 of a batch, has 1"),
        (lambda: cublaslt.layout(np.zeros((2, 2), bool)), ArgumentError, "like is of bool, and cuBLASLt has"),
        (lambda: cublaslt.layout(3), ArgumentTypeError, "needs a DevicePtr or a NumPy array, got 3"),
        (
            lambda: setattr(descriptor_of("MatmulDesc"), "epilogue", 1.5),
            ArgumentTypeError,
            r"MatmulDesc\.epilogue: needs an int",
        ),
        (lambda: setattr(descriptor_of("MatmulDesc"), "epilogue", -1), SizeOverflowError, "fits uint32, got -1"),
        (
            lambda: setattr(descriptor_of("MatrixLayout"), "ld", "5"),
            ArgumentTypeError,
            r"MatrixLayout\.ld: needs an integer",
        ),
        (lambda: setattr(descriptor_of("MatmulDesc"), "epilog", 1), AttributeError, "epilog"),
        (
            lambda: attribute(np.zeros(1, np.int64), 4),
            DTypeError,
            r"buf needs an array of uint32, as attr \(MATMUL_DESC",
        ),
        (lambda: attribute(np.zeros(2, np.uint32), 8), ArgumentError, r"attr \(MATMUL_DESC_EPILOGUE\) is uint32, of 4"),
        (lambda: attribute(np.zeros(1, np.uint32), 2), ArgumentError, "of 4 bytes, got 2"),
        (lambda: attribute(None, 4), ArgumentError, "buf"),
        (lambda: cublaslt.matmul_desc_create(3, 0), ArgumentError, "computeType needs one of"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(call: Callable[[], Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def attribute(values: Any, nbytes: int) -> None:
    cublaslt.matmul_desc_set_attribute(descriptor_of("MatmulDesc"), cublaslt.MATMUL_DESC_EPILOGUE, values, nbytes)


def test_every_kind_of_object_has_its_creator_and_its_destroyer() -> None:
    for kind in KINDS:
        descriptor = descriptor_of(kind)
        getattr(cublaslt, f"{cublaslt._ATTRIBUTES[kind][0]}_destroy")(descriptor)
        with pytest.raises(StalePointerError):
            _ = descriptor.address


@pytest.mark.parametrize(
    "count", [pytest.param(2_000, id="short"), pytest.param(100_000, id="long", marks=pytest.mark.slow)]
)
def test_descriptors_that_are_made_and_dropped_leave_no_memory(count: int) -> None:
    def make() -> None:
        for _ in range(count):
            for kind in KINDS:
                descriptor_of(kind)

    check_no_leak(make, 1 << 20)


def test_the_library_says_its_version_and_the_names_of_its_statuses() -> None:
    major, minor, patch = (cublaslt.get_property(part) for part in range(3))
    assert cublaslt.get_version() == major * 10000 + minor * 100 + patch
    assert cublaslt.get_status_name(cublaslt.STATUS_NOT_SUPPORTED) == "CUBLAS_STATUS_NOT_SUPPORTED"
    assert "not supported" in cublaslt.get_status_string(cublaslt.STATUS_NOT_SUPPORTED)
    assert cublaslt.raw.cublasLtGetVersion() == cublaslt.get_version()


LOGS = """
import ctypes, sys
from offload_args import cublaslt
text = []
function = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
heard = function(lambda level, name, what: text.append(what))
c = ctypes.CDLL(None)
c.fopen.restype, c.fflush.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def make():
    cublaslt.matrix_layout_create(cublaslt.CUDA_R_32F, 5, 7, 5)
    cublaslt.matmul_desc_create(cublaslt.COMPUTE_32F, cublaslt.CUDA_R_32F)
def size(path):
    c.fflush(None)
    return len(open(path).read())
cublaslt.logger_set_level(5)
cublaslt.raw.cublasLtLoggerOpenFile(sys.argv[1].encode())
make()
assert size(sys.argv[1]) > 0
file = c.fopen(sys.argv[2].encode(), b"w")
cublaslt.logger_set_file(file)
make()
assert size(sys.argv[2]) > 0
cublaslt.logger_set_callback(ctypes.cast(heard, ctypes.c_void_p).value)
make()
assert text
cublaslt.logger_set_callback(0)
cublaslt.logger_set_level(0)
before = size(sys.argv[2])
make()
assert size(sys.argv[2]) == before
cublaslt.logger_set_mask(31)
make()
assert size(sys.argv[2]) > before
cublaslt.logger_force_disable()
before, heard_before = size(sys.argv[2]), len(text)
make()
assert (size(sys.argv[2]), len(text)) == (before, heard_before)
"""


def test_the_log_goes_to_a_file_or_a_function_until_it_is_disabled(tmp_path: Path) -> None:
    """This runs in a separate process, because the library has a single log."""
    files = [str(tmp_path / name) for name in ("opened", "given")]
    done = subprocess.run(
        [sys.executable, "-c", LOGS, *files], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_cache_of_searches_has_the_size_that_is_set() -> None:
    before = cublaslt.heuristics_cache_get_capacity()
    for size in (0, 256, before):
        cublaslt.heuristics_cache_set_capacity(size)
        assert cublaslt.heuristics_cache_get_capacity() == size


def test_the_runtime_is_of_the_release_of_the_library() -> None:
    assert cublaslt.get_cudart_version() // 1000 == cublaslt.get_version() // 10000
