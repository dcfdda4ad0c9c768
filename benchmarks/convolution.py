"""Compare cuDNN's convolutions on present arrays with PyTorch and plain C: python benchmarks/convolution.py.

See README.md in this folder.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from timeit import Timer
from typing import Any, NamedTuple

import cffi
import numpy as np
import torch

from offload_args import In, Out, Scratch, cudnn, libraries, offload_args

IMAGES = 32
SHAPES = {64: 56, 128: 28, 256: 14, 512: 7}  # {channels: pixels along a side} of ResNet's 3x3 convolutions
SOURCE = """
#include <dlfcn.h>
#include <stddef.h>
typedef const void *in;
typedef int (*convolution)(void *, in, in, in, in, in, in, int, void *, size_t, in, in, void *);
typedef int (*described)(void *, in, in, in, in, in, in, void *);
typedef int (*softmax)(void *, int, int, in, in, in, in, in, void *);
static convolution convolve;
static described activate, pool;
static softmax normalize;
static const float one = 1, zero = 0;
int bare_open(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  convolve = (convolution)dlsym(library, "cudnnConvolutionForward");
  activate = (described)dlsym(library, "cudnnActivationForward");
  pool = (described)dlsym(library, "cudnnPoolingForward");
  normalize = (softmax)dlsym(library, "cudnnSoftmaxForward");
  return !convolve || !activate || !pool || !normalize;
}
int bare_convolution(long count, void **a, int algorithm, size_t bytes) {
  int failed = 0;
  for (long i = 0; i < count; i++)
    failed |= convolve(a[0], &one, a[1], a[2], a[3], a[4], a[5], algorithm, a[6], bytes, &zero, a[7], a[8]);
  return failed;
}
static int described_loop(described call, long count, void **a) {
  int failed = 0;
  for (long i = 0; i < count; i++) failed |= call(a[0], a[1], &one, a[2], a[3], &zero, a[4], a[5]);
  return failed;
}
int bare_activation(long count, void **a) { return described_loop(activate, count, a); }
int bare_pooling(long count, void **a) { return described_loop(pool, count, a); }
int bare_softmax(long count, void **a, int algorithm, int mode) {
  int failed = 0;
  for (long i = 0; i < count; i++) failed |= normalize(a[0], algorithm, mode, &one, a[1], a[2], &zero, a[3], a[4]);
  return failed;
}
"""
LOOPS = """
int bare_open(const char *path);
int bare_convolution(long count, void **a, int algorithm, size_t bytes);
int bare_activation(long count, void **a);
int bare_pooling(long count, void **a);
int bare_softmax(long count, void **a, int algorithm, int mode);
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
            cudnn.convolution(padding=1, dtype=np.float16),
            cudnn.tensor(self.y, "NHWC"),
        )


def bare(folder: str) -> Any:
    """Compile the loops in C, and return them."""
    ffi = cffi.FFI()
    ffi.cdef(LOOPS)
    ffi.set_source("bare", SOURCE, libraries=["dl"])
    loader = ExtensionFileLoader("bare", ffi.compile(tmpdir=folder))
    spec = spec_from_loader("bare", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def turns(sides: dict[str, Callable[[], Any]], calls: int, rounds: int, issue: bool) -> dict[str, float]:
    """Return the median microseconds of a call of each side; sides take turns.

    With `issue`, no run waits for its calls.
    """
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
    _, results = cudnn.find_convolution_forward_algorithm(handle, x, w, conv, y, 8)
    return next(int(row[0]) for row in results if row[1] == 0 and row[3] <= o.room.nbytes)


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
    arguments = In(x), In(w), In(b), Out(y), Scratch((1 << 28,), np.uint8)
    with offload_args(*arguments, device="cuda:0") as pointers, cudnn.create(device="cuda:0") as handle:
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
        results = turns(sides, 100, rounds, issue=False)
        expected = torch.relu(torch.nn.functional.conv2d(theirs, weights, bias, padding=1)).permute(0, 2, 3, 1)
        fused(o.x, o.w, o.b, o.y)
        once, three = results["PyTorch"], results["PyTorch's three calls"]
        print(
            f"{channels} channels: PyTorch {once:.1f} us, call {results['call']:.1f} ({results['call'] / once:.3f}), "
            f"plan {results['plan']:.1f} ({results['plan'] / once:.3f}); PyTorch's three calls {three:.1f}, "
            f"fused plan {results['fused plan']:.1f} ({results['fused plan'] / three:.3f})",
            flush=True,
        )
    wrong = np.abs(y.astype(np.float32) - expected.float().cpu().numpy()).max() / max(np.abs(y).max(), 1)
    assert wrong <= 2e-2, wrong


def above(name: str, ours: Timer, bare: dict[int, Timer], rounds: int) -> None:
    """Print the time to issue a call, compared with a bare call of cffi (bare[1]) and ten calls in C (bare[10])."""
    sides = (bare[10], 1), (bare[1], 10), (ours, 10)
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds + 2):
        for spent, (timer, count) in zip(times, sides, strict=True):
            torch.cuda.synchronize()
            spent.append(1e6 * timer.timeit(count) / 10)
    in_c, by_cffi, here = (np.array(spent[2:]) for spent in times)
    print(
        f"{name}: C {np.median(in_c):.2f} us, cffi {np.median(by_cffi - in_c):.2f} more, "
        f"cudnn.{name} {np.median(here - in_c):.2f} more (at most 2), {np.median(here - by_cffi):.2f} more than cffi",
        flush=True,
    )


def call_cost(rounds: int) -> None:
    """Print the cost of issuing small calls, compared with the same calls in C.

    Each side has its own arrays and descriptors.
    """
    images, filters = np.zeros((1, 8, 8, 8), np.float16), np.zeros((8, 3, 3, 8), np.float16)
    passed = In(images), In(filters), Scratch((8,), np.float16), Out(images.copy()), Scratch((1 << 20,), np.uint8)
    with (
        tempfile.TemporaryDirectory() as folder,
        offload_args(*passed, device="cuda:0") as mine,
        offload_args(*(Scratch(array.shape, array.dtype) for array in mine), device="cuda:0") as theirs,
        cudnn.create(device="cuda:0") as handle,
    ):
        o, t = Operands(*mine), Operands(*theirs)
        (ox, ow, oconv, oy), (tx, tw, tconv, ty) = o.descriptors, t.descriptors
        relu, most = (
            [make() for _ in range(2)]
            for make in (
                lambda: cudnn.activation(cudnn.ACTIVATION_RELU),
                lambda: cudnn.pooling(cudnn.POOLING_MAX, 3, padding=1, stride=1),
            )
        )
        algorithm = cudnn.CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
        kind = cudnn.SOFTMAX_FAST, cudnn.SOFTMAX_MODE_CHANNEL
        plan = plan_of(o, fused=True)
        library = bare(folder)
        assert library.lib.bare_open(libraries.load("cudnn").path.encode()) == 0

        def places(*arguments: Any) -> Any:
            return library.ffi.new(
                "void *[]", [library.ffi.cast("void *", pointer.address) for pointer in (handle, *arguments)]
            )

        names = o._asdict() | {"tx": ox, "fw": ow, "conv": oconv, "ty": oy, "relu": relu[0], "window": most[0]}
        names |= {"algorithm": algorithm, "nbytes": o.room.nbytes, "softmax": kind[0], "mode": kind[1]}
        names |= {"c": places(tx, t.x, tw, t.w, tconv, t.room, ty, t.y), "s": places(tx, t.x, ty, t.y)}
        names |= {"a": places(relu[1], tx, t.x, ty, t.y), "p": places(most[1], tx, t.x, ty, t.y)}
        for name, arguments, of_bare in [
            ("convolution", "1, tx, x, fw, w, conv, algorithm, room, nbytes, 0, ty, y", "c, algorithm, nbytes"),
            ("activation", "relu, 1, tx, x, 0, ty, y", "a"),
            ("pooling", "window, 1, tx, x, 0, ty, y", "p"),
            ("softmax", "softmax, mode, 1, tx, x, 0, ty, y", "s, softmax, mode"),
        ]:
            bare_call = getattr(library.lib, f"bare_{name}")
            ours = Timer(f"f({arguments})", globals=names | {"f": getattr(cudnn, f"{name}_forward")})
            in_c = {n: Timer(f"f({n}, {of_bare})", globals=names | {"f": bare_call}) for n in (1, 10)}
            assert bare_call(1, *(names[name] for name in of_bare.split(", "))) == 0
            above(f"{name}_forward", ours, in_c, rounds)
        actual = turns({"a fused plan": lambda: plan(o.x, o.w, o.b, o.y)}, 10, rounds, issue=True)
        print("; ".join(f"{name} {value:.2f} us" for name, value in actual.items()), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {cudnn.get_version()}", flush=True)
    call_cost(10 * rounds)
    for channels, side in SHAPES.items():
        compare(channels, side, rounds)
