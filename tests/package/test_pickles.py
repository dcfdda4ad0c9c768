"""Each public object either can be pickled, or refuses by an error that names the object and the remedy."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import offload_args as package
from kernels.images import PTX
from offload_args import (
    ArgumentTypeError,
    Communicator,
    Device,
    HostAccessError,
    In,
    InOut,
    Module,
    Out,
    Scratch,
    cblas,
    cublaslt,
    cudnn,
    kernel,
    kernels,
    lapack,
    libraries,
    linalg,
    offload_args,
    rccl,
    record,
    scripts,
    sparse,
    testing,
    trace,
    update,
)
from offload_args.objects import LibraryObject

scipy_sparse = pytest.importorskip("scipy.sparse", reason="device unavailable: no SciPy")
OF_LIBRARIES: tuple[Any, ...] = (LibraryObject, cublaslt.Matmul, cudnn.Plan)  # only a library makes such objects


@kernel
def fill(y: Out[np.float32].by(kernels.Linear1D())):
    for i in y.mine():
        y[i] = i


def public_classes() -> set[type]:
    """Return the classes that the package and its public modules name."""
    modules: list[Any] = [package]
    seen: set[str] = set()
    classes: set[type] = set()
    while modules:
        module = modules.pop()
        seen.add(module.__name__)
        for name in module.__all__ if hasattr(module, "__all__") else dir(module):
            if module.__name__.rpartition(".")[2] in libraries.NAMES and (not name[0].isupper() or name.isupper()):
                continue  # a function or a constant
            value = getattr(module, name)
            if isinstance(value, ModuleType) and value.__name__.startswith("offload_args."):
                modules += [value] * (value.__name__ not in seen)
            elif inspect.isclass(value) and value.__module__.startswith("offload_args"):
                classes.add(value)
    return classes


@pytest.fixture
def objects(tmp_path: Any) -> Iterator[list[Any]]:
    """Public objects of all kinds: of public classes, and of classes that public functions return."""
    x, index = np.ones(3), np.arange(3)
    with ExitStack() as stack:
        region = offload_args(x, device="host")
        (pointer,) = stack.enter_context(region)
        capture = region.capture()
        with capture as graph:
            pass
        (communicator,) = Communicator.all(["host"])
        stack.callback(communicator.close)
        accelerated = stack.enter_context(scripts.accelerate("host"))
        module = Module.load(PTX.encode(), name="kernels")
        relu, vadd = module.kernel("relu", InOut[np.float32], np.int32), module.kernel("vadd")
        described = cudnn.Graph()
        yield [
            region, pointer, pointer.dtype, capture, graph, communicator, accelerated, accelerated.report, update(x),
            Device.host(), Device.host().memory, Device.host().residency, Device.host().counters,
            In(x), Out(x), InOut(x), Scratch(3, np.float64), In[np.float32], kernels.Shared[np.float32](3),
            module, relu, relu.module, relu[1, 64], relu[1, 64, 0, None], vadd, vadd[1, 64], fill, fill.module,
            fill[(1, 2), 64, 16], kernels.reduce("sum", "x * x", x=np.float32),
            kernels.elementwise("y = 2", y=Out[np.float32]),
            *[kind() for kind in (kernels.GridStride1D, kernels.Linear1D, kernels.Linear2D, kernels.PerBlock)],
            kernels.Rows(), kernels.RowBlocks(4), kernels.Tiles(8, 8),
            record(tmp_path / "calls.jsonl"), trace(), trace().summary, trace().timeline,
            cblas.raw, cblas.raw.cblas_ddot, cblas.ddot, rccl.UniqueId(bytes(128)),
            described, described.input(np.ones((1, 2, 3, 4), np.float32)),
            cublaslt.Algo(np.zeros(8, np.uint64), 0, 0.0, 0),
            stack.enter_context(sparse.lend(scipy_sparse.eye(3, format="csr"), device="host")),
            scripts.Row("dgemm", None, *range(13)),
            libraries.load("cblas"), testing.Moved(Device.host()), lapack.StackError("failed", index),
            linalg.EighResult(x, x), linalg.QRResult(x, x), linalg.SVDResult(x, x, x), linalg.SlogdetResult(1.0, 0.0),
        ]  # fmt: skip


def check(thing: Any) -> None:
    """Check that an object comes back from a pickle, or that the error names it and the remedy."""
    for function in (lambda thing: pickle.loads(pickle.dumps(thing)), copy.deepcopy, copy.copy):
        try:
            assert type(function(thing)) is type(thing)
        except (ArgumentTypeError, HostAccessError) as error:
            parts = re.match(r"[\w.]*?(\w+): .*(can't be (copied|pickled)|needs the values).*[:;] \w+ .+", str(error))
            assert parts is not None and parts[1] == type(thing).__name__, error


def test_each_public_object_is_pickled_or_names_the_remedy(objects: list[Any]) -> None:
    for thing in objects:
        check(thing)


def test_objects_of_each_public_class(objects: list[Any]) -> None:
    for kind in public_classes():
        if issubclass(kind, (Exception, Warning)) and kind is not lapack.StackError:
            check(kind("cblas.ddot: wrong"))
        elif issubclass(kind, OF_LIBRARIES):
            check(object.__new__(kind))
        else:
            assert any(isinstance(thing, kind) for thing in objects), f"{kind} has no object in `objects`"


def test_a_launch_with_a_stream_names_the_remedy() -> None:
    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 4096

    launch = fill[1, 64, 0, Stream()]
    with pytest.raises(ArgumentTypeError, match=r"fill\[grid, block.*stream .*pickle fill.*shared_bytes\], or"):
        pickle.dumps(launch)
