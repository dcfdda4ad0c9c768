"""Principal components of real data on any device: the computation of `python -m offload_args demo`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offload_args import Device, DevicePtr, Out, Scratch, blas, offload_args

Array = NDArray[np.float64]

DIGITS = Path(__file__).with_name("data") / "digits.npz"


def load_digits() -> Array:
    """Load the 1,797 digits as rows of 64 pixels, and subtract each pixel's mean.

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
        lengths: (count,) on the host; receives each row's length after its projections on earlier rows are subtracted.
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

    One region holds the whole iteration: data goes up once, the components come down once, and no bytes move between
    the calls.

    Args:
        data: n rows of d features, from which the features' means are subtracted.
        count: the number of components; at most d.
        device: the device that computes; None is the default device.
        iterations: the greatest number of steps; the iteration stops earlier once every eigenvalue is stable to a
        relative 1e-13.

    Returns:
        The eigenvalues of the covariance matrix (count), the components as rows (count, d), and the number of steps.
    """
    n, d = data.shape
    components = np.empty((count, d))
    lengths = np.zeros(count)
    arrays = data, Out(components), Scratch((n, count), np.float64), Scratch((count,), np.float64)
    with offload_args(*arrays, device=device) as (X, V, Y, overlaps):
        basis, steps, settled = X[:count], 0, False  # the first basis: the first rows of data
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
