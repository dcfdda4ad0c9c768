"""Measure cuDNN's convolutions on present arrays beside PyTorch's and plain C's: python benchmarks/convolution.py.

See README.md beside it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any, NamedTuple

import cffi
import numpy as np
import torch

from offload_args import In, Out, Scratch, cudnn, libraries, offload_args

IMAGES = 32
SHAPES = {64: 56, 128: 28, 256: 14, 512: 7}  # channels: pixels a side, of ResNet's 3x3 convolutions
TYPES = "void *, const void *, const void *, const void *, const void *, const void *, const void *, int, void *,"
SOURCE = f"""
#include <dlfcn.h>
#include <stddef.h>
typedef int (*forward)({TYPES} size_t, const void *, const void *, void *);
static forward call;
int bare_open(const char *path) {{
  call = (forward)dlsym(dlopen(path, RTLD_NOW), "cudnnConvolutionForward");
  return !call;
}}
int bare_loop(long count, void **a, int algorithm, size_t bytes) {{
  const float one = 1, zero = 0;
  int failed = 0;
  for (long i = 0; i < count; i++)
    failed |= call(a[0], &one, a[1], a[2], a[3], a[4], a[5], algorithm, a[6], bytes, &zero, a[7], a[8]);
  return failed;
}}
"""


class Operands(NamedTuple):
    """Pointers of a convolution, NHWC in half, with a bias and a workspace."""

    x: Any
    w: Any
    b: Any
    y: Any
    room: Any

    @property
    def descriptors(self) -> tuple[Any, Any, Any, Any]:
        return (
            cudnn.tensor(self.x, "NHWC"),
            cudnn.filter(self.w, "KHWC"),
            cudnn.convolution(padding=1),
            cudnn.tensor(self.y, "NHWC"),
        )


def bare(folder: str) -> Any:
    """Return the loop in C, compiled on the spot."""
    ffi = cffi.FFI()
    ffi.cdef("int bare_open(const char *path); int bare_loop(long count, void **a, int algorithm, size_t bytes);")
    ffi.set_source("bare", SOURCE, libraries=["dl"])
    loader = ExtensionFileLoader("bare", ffi.compile(tmpdir=folder))
    spec = spec_from_loader("bare", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def turns(sides: dict[str, Callable[[], Any]], calls: int, rounds: int, issue: bool) -> dict[str, float]:
    """Return the median microseconds of a call of each side, which take turns; issue: without a wait."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for at in range(rounds + 2):
        for name, function in sides.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                function()
            if not issue:
                torch.cuda.synchronize()
            spent = time.perf_counter() - start
            torch.cuda.synchronize()
            if at >= 2:
                times[name].append(1e6 * spent / calls)
    return {name: statistics.median(some) for name, some in times.items()}


def plan_of(o: Operands, fused: bool) -> Any:
    graph = cudnn.Graph("cuda:0")
    x, w = graph.input(o.x, "NHWC"), graph.input(o.w, "KHWC")
    if not fused:
        return graph.output(graph.convolution(x, w, padding=1), o.y, "NHWC").plan(measured_on=(o.x, o.w, o.y))
    result = graph.relu(graph.add(graph.convolution(x, w, padding=1), graph.input(o.b, "C")))
    return graph.output(result, o.y, "NHWC").plan(measured_on=(o.x, o.w, o.b, o.y))


def fastest(o: Operands, handle: Any) -> int:
    """Return cuDNN's fastest algorithm whose workspace suffices."""
    x, w, conv, y = o.descriptors
    _, found = cudnn.find_convolution_forward_algorithm(handle, x, w, conv, y, 8)
    return next(int(one[0]) for one in found if one[1] == 0 and one[3] <= o.room.nbytes)


def arrays(channels: int, side: int) -> list[Any]:
    random = np.random.default_rng(channels)
    shapes = (IMAGES, side, side, channels), (channels, 3, 3, channels), (channels,)
    return [(random.integers(-8, 9, shape) / 8).astype(np.float16) for shape in shapes]


def compare(channels: int, side: int, rounds: int) -> None:
    """Print the rows of one shape."""
    x, w, b = arrays(channels, side)
    y = np.empty((IMAGES, side, side, channels), np.float16)
    theirs = torch.from_numpy(x).cuda().permute(0, 3, 1, 2)
    weights, bias = torch.from_numpy(w).cuda().permute(0, 3, 1, 2), torch.from_numpy(b).cuda()
    view = bias.view(1, -1, 1, 1)
    given = In(x), In(w), In(b), Out(y), Scratch((1 << 28,), np.uint8)
    with offload_args(*given, device="cuda:0") as pointers, cudnn.create(device="cuda:0") as handle:
        o = Operands(*pointers)
        tx, fw, conv, ty = o.descriptors
        algorithm = fastest(o, handle)
        alone, fused = plan_of(o, fused=False), plan_of(o, fused=True)
        sides: dict[str, Callable[[], Any]] = {
            "PyTorch": lambda: torch.nn.functional.conv2d(theirs, weights, padding=1),
            "call": lambda: cudnn.convolution_forward(
                1, tx, o.x, fw, o.w, conv, algorithm, o.room, o.room.nbytes, 0, ty, o.y
            ),
            "plan": lambda: alone(o.x, o.w, o.y),
            "PyTorch's three calls": lambda: torch.relu(torch.nn.functional.conv2d(theirs, weights, padding=1) + view),
            "fused plan": lambda: fused(o.x, o.w, o.b, o.y),
        }
        found = turns(sides, 100, rounds, issue=False)
        expected = torch.relu(torch.nn.functional.conv2d(theirs, weights, bias, padding=1)).permute(0, 2, 3, 1)
        fused(o.x, o.w, o.b, o.y)
        one, three = found["PyTorch"], found["PyTorch's three calls"]
        print(
            f"{channels} channels: PyTorch {one:.1f} us, call {found['call']:.1f} ({found['call'] / one:.3f}), "
            f"plan {found['plan']:.1f} ({found['plan'] / one:.3f}); PyTorch's three calls {three:.1f}, "
            f"fused plan {found['fused plan']:.1f} ({found['fused plan'] / three:.3f})",
            flush=True,
        )
    wrong = np.abs(y.astype(np.float32) - expected.float().cpu().numpy()).max() / max(np.abs(y).max(), 1)
    assert wrong <= 2e-2, wrong


def call_cost(rounds: int) -> None:
    """Print the cost of issuing a small convolution, beside the same in C."""
    images, filters = np.zeros((1, 8, 8, 8), np.float16), np.zeros((8, 3, 3, 8), np.float16)
    given = In(images), In(filters), Scratch((8,), np.float16), Out(images.copy()), Scratch((1 << 20,), np.uint8)
    with (
        tempfile.TemporaryDirectory() as folder,
        offload_args(*given, device="cuda:0") as pointers,
        cudnn.create(device="cuda:0") as handle,
    ):
        o = Operands(*pointers)
        tx, fw, conv, ty = o.descriptors
        algorithm = cudnn.CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
        relu = cudnn.activation(cudnn.ACTIVATION_RELU)
        plan = plan_of(o, fused=True)
        library = bare(folder)
        x, w, kernel, y = o.descriptors  # of its own: what is given away is asked again at each call
        addresses = [one.address for one in (handle, x, o.x, w, o.w, kernel, o.room, y, o.y)]
        places = library.ffi.new("void *[]", [library.ffi.cast("void *", one) for one in addresses])
        assert library.lib.bare_open(libraries.load("cudnn").path.encode()) == 0
        sides: dict[str, Callable[[], Any]] = {
            "C, 10 calls": lambda: library.lib.bare_loop(10, places, algorithm, o.room.nbytes),
            "cffi": lambda: library.lib.bare_loop(1, places, algorithm, o.room.nbytes),
            "cudnn.convolution_forward": lambda: cudnn.convolution_forward(
                1, tx, o.x, fw, o.w, conv, algorithm, o.room, o.room.nbytes, 0, ty, o.y
            ),
            "without a workspace": lambda: cudnn.convolution_forward(
                1, tx, o.x, fw, o.w, conv, algorithm, None, 0, 0, ty, o.y
            ),
            "cudnn.activation_forward": lambda: cudnn.activation_forward(relu, 1, tx, o.x, 0, ty, o.y),
            "a fused plan": lambda: plan(o.x, o.w, o.b, o.y),
        }
        assert sides["C, 10 calls"]() == 0
        found = turns(sides, 10, rounds, issue=True)
        found["C"] = found.pop("C, 10 calls") / 10
        print("; ".join(f"{name} {value:.2f} us" for name, value in found.items()), flush=True)
        ours = found["cudnn.convolution_forward"]
        print(f"convolution_forward is {ours - found['C']:.2f} us above C (at most 2)")
        print(f"and {ours - found['cffi']:.2f} us above one bare call by cffi")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {cudnn.get_version()}", flush=True)
    call_cost(rounds)
    for channels, side in SHAPES.items():
        compare(channels, side, rounds)
