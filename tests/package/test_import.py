"""The import of the package, its public names, and the end of a program that uses the package."""

from __future__ import annotations

import numpy as np
import pytest

import offload_args as package
from helpers.processes import printed, python


def test_the_import_needs_no_gpu_and_loads_no_vendor_library() -> None:
    code = """
import sys, offload_args
print([m for m in sys.modules if m.startswith(("cuda", "scipy", "offload_args.c", "offload_args.b"))])
maps = open("/proc/self/maps").read()
print([name for name in ("libcuda", "libcublas", "libscipy_openblas.so") if name in maps])
"""
    assert printed(code).split() == ["[]", "[]"]


def test_every_public_name_is_there_and_others_are_not() -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
    with pytest.raises(AttributeError, match="no attribute 'elephant'"):
        _ = package.elephant


@pytest.mark.later("host")
@pytest.mark.promise("T22")
def test_the_interpreter_leaves_quietly_with_open_regions_and_pointers(device: str) -> None:
    code = f"""
import numpy as np, sys
from offload_args import offload_args, blas
regions = [offload_args(np.ones(4), device=name) for name in ("host", "{device}")]
pointers = [region.__enter__()[0] for region in regions]
slices = [p[1:] for p in pointers]
for p in pointers: blas.scal(2.0, p)
"""
    assert printed(code) == ""
    left = python(code + "\nwith offload_args(np.ones(2)): sys.exit(7)")
    assert (left.returncode, left.stderr) == (7, "")


def test_a_call_of_the_package_names_its_class() -> None:
    with pytest.raises(TypeError, match="'module' object is not callable; write from offload_args import offload_args"):
        package(np.ones(3))


@pytest.mark.parametrize("name", "blas embedding errors fft kernels lapack libraries linalg sparse testing".split())
def test_completion_shows_public_names_only(name: str) -> None:
    module = getattr(package, name)
    assert dir(module) == sorted([*module.__all__, "raise_status"] if name == "errors" else module.__all__)


def test_a_name_that_the_package_lacks_is_told_where_it_is() -> None:
    wrong = {
        "solve": r"; linalg\.solve is one, by from offload_args import linalg$",
        "gemm": r"; blas\.gemm is one",
        "zeros": r"; arrays are NumPy's: make one by np\.zeros\(",
        "array": r"; arrays are NumPy's: make one by np\.array\(",
        "asarray": r"; arrays are NumPy's",
        "zeros_like": r"Scratch\(shape, dtype\)",
        "float32": r"; dtypes are NumPy's: np\.float32$",
        "region": r"; offload_args\(x\) lends arrays for a block",
        "to_device": r"; offload_args\(x\) lends arrays for a block",
        "synchronize": r"; leaving a region waits for its calls",
        "jit": r"; use kernel, a decorator",
        "Stream": r"; offload_args\(x, stream=theirs\)",
        "set_device": r'; devices have names, such as offload_args\(x, device="cuda:0"\)',
        "cuda": r'; devices have names, such as offload_args\(x, device="cuda:0"\)',
        "asnumpy": r"pointers have to_host\(\)$",
        "sum": r'; use kernels\.reduce\("sum", .* or np\.sum of arrays$',
        "ofload": "; did you mean offload",
    }
    for name, remedy in wrong.items():
        with pytest.raises(AttributeError, match=f"no attribute '{name}'{remedy}|no attribute '{name}'.*{remedy}"):
            getattr(package, name)
        assert not hasattr(package, name)
