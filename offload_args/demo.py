"""Principal components of real data on whatever device is there: python -m offload_args demo."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from offload_args import Device, DevicePtr, Out, Scratch, blas, offload_args

Array = NDArray[np.float64]

DIGITS = Path(__file__).with_name("data") / "digits.npz"
TOLERANCE = 1e-6


def load_digits() -> Array:
    """Load the 1,797 digits as rows of 64 pixels, each pixel's mean subtracted.

    Source: offload_args/data/SOURCE.md.
    """
    with np.load(DIGITS) as file:
        images = file["images"].astype(np.float64)
    centred: Array = images - images.mean(axis=0)
    return centred


def orthonormalise(V: DevicePtr[np.float64], overlaps: DevicePtr[np.float64], lengths: Array) -> None:
    """Make the rows of V orthonormal in place on the device, by Gram-Schmidt.

    Args:
        V: (count, d).
        overlaps: (count,), overwritten.
        lengths: (count,) on the host; receives each row's length once the rows before it are taken out.
    """
    for k in range(len(lengths)):
        row = V[k]
        if k > 0:
            done, overlap = V[:k], overlaps[:k]
            blas.gemv(1.0, done, row, 0.0, overlap)
            blas.gemv(-1.0, done.T, overlap, 1.0, row)
        lengths[k] = blas.nrm2(row)
        blas.scal(1.0 / lengths[k], row)


def principal_components(
    data: Array, count: int, device: Device | None = None, iterations: int = 1000
) -> tuple[Array, Array, int]:
    """Find the leading principal components of centred data by block power iteration on a device.

    One region holds the whole iteration: data goes up once, the components come down once, and nothing moves between
    the calls.

    Args:
        data: n rows of d features, their means subtracted.
        count: how many components; at most d.
        device: where; the default device unless given.
        iterations: at most so many steps; it stops earlier once no eigenvalue changes by more than 1e-13 of itself.

    Returns:
        The eigenvalues of the covariance matrix (count), the components as rows (count, d), and the steps made.
    """
    n, d = data.shape
    components = np.empty((count, d))
    lengths = np.zeros(count)
    arrays = data, Out(components), Scratch((n, count), np.float64), Scratch((count,), np.float64)
    with offload_args(*arrays, device=device) as (X, V, Y, overlaps):
        basis, steps, settled = X[:count], 0, False  # the start: the first rows of data
        while not settled and steps < iterations:
            blas.gemm(1.0, X, basis.T, 0.0, Y)
            blas.gemm(1.0, Y.T, X, 0.0, V)
            before = lengths.copy()
            orthonormalise(V, overlaps, lengths)
            settled = bool(np.all(np.abs(lengths - before) <= 1e-13 * lengths))
            basis, steps = V, steps + 1
    return lengths / (n - 1), components, steps


def draw(components: Array, eigenvalues: Array, path: str) -> None:
    """Draw the components as 8 x 8 pictures into a file whose suffix names the format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(components), figsize=(1.6 * len(components), 2.0), squeeze=False)
    for axis, component, eigenvalue in zip(axes[0], components, eigenvalues, strict=True):
        bound = np.abs(component).max()
        axis.imshow(component.reshape(8, 8), cmap="RdBu", vmin=-bound, vmax=bound)
        axis.set_title(f"{eigenvalue:.1f}")
        axis.set_axis_off()
    figure.savefig(path, bbox_inches="tight", dpi=150)
    pyplot.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit status: 0 if every eigenvalue agrees with NumPy's to 1e-6 of itself."""
    parser = argparse.ArgumentParser(prog="python -m offload_args demo", description=__doc__)
    parser.add_argument("--device", help="such as host, sim:0 or cuda:0; the first GPU unless given, else host")
    parser.add_argument("--components", type=int, default=6, help="how many (1 to 32; %(default)s)")
    parser.add_argument("--plot", metavar="FILE", help="draw the components, such as components.png (needs matplotlib)")
    options = parser.parse_args(argv)
    if not 1 <= options.components <= 32:
        parser.error(f"--components needs 1 to 32, got {options.components}")
    if options.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'offload-args[demo]'")

    device = Device(options.device) if options.device else Device.default()
    data = load_digits()
    before = device.counters
    start = perf_counter()
    eigenvalues, components, steps = principal_components(data, options.components, device)
    seconds = perf_counter() - start
    after = device.counters
    calls = after.calls - before.calls
    copies_up, bytes_up = after.copies_up - before.copies_up, after.bytes_up - before.bytes_up
    copies_down, bytes_down = after.copies_down - before.copies_down, after.bytes_down - before.bytes_down

    singular = np.linalg.svd(data, compute_uv=False)
    variances = singular**2 / (len(data) - 1)
    expected = variances[: options.components]
    errors = np.abs(eigenvalues - expected) / expected

    print(f"device      {device.name} ({device.model})")
    print(f"data        {data.shape[0]:,} digits of 8 x 8 pixels, float64, {data.nbytes:,} bytes")
    print(f"iterations  {steps}, {calls:,} BLAS calls in one region, {seconds:.3f} s")
    print()
    print("component  eigenvalue  NumPy's SVD  relative error  of the variance")
    for k, (value, reference, error) in enumerate(zip(eigenvalues, expected, errors, strict=True), 1):
        print(f"{k:9}  {value:10.4f}  {reference:11.4f}  {error:14.1e}  {value / variances.sum():15.1%}")
    print()
    print(f"up          {copies_up} copy, {bytes_up:,} bytes: the data")
    print(f"down        {copies_down} copy, {bytes_down:,} bytes: the components")
    if options.plot:
        draw(components, eigenvalues, options.plot)
        print(f"drawn       {options.plot}")
    if errors.max() > TOLERANCE:
        print(f"FAILED: the largest relative error is {errors.max():.1e}, above {TOLERANCE:.0e}", file=sys.stderr)
        return 1
    return 0
