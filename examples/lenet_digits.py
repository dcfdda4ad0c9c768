"""A convolution net
=================

The net learns 1,497 digits by NumPy and, on an NVIDIA GPU, by cuDNN, and reads 300 others. The digits: E. Alpaydin and
C. Kaynak, Optical Recognition of Handwritten Digits, 1998, doi.org/10.24432/C50P49, CC BY 4.0.
"""

import argparse
from typing import Any

import numpy as np

from offload_args import Device, In, InOut, Scratch, cudnn, demo, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as cuda:0; the first GPU unless given")
parser.add_argument("--plot", metavar="FILE", help="draw some digits as they were read (needs matplotlib)")
options = parser.parse_args()
device = Device(options.device or Device.default().name)
batches, n, rate, random = 30 * list(range(0, 1465, 32)), 32, 0.2, np.random.default_rng(0)
order = np.r_[random.permutation(1497), 1497:1797]
X = (demo.load_digits()[order] / 8).astype(np.float32).reshape(-1, 1, 8, 8)
T = np.eye(10, dtype=np.float32)[np.load(demo.DIGITS)["labels"][order]].reshape(-1, 10, 1, 1)
start = [(random.standard_normal(shape) / 5).astype(np.float32) for shape in ((16, 1, 3, 3), 16, (10, 16, 4, 4))]


def forward(x: Any, w: Any, b: Any, v: Any) -> Any:
    seen = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    a = np.maximum(np.moveaxis(np.tensordot(seen, w, ((1, 4, 5), (1, 2, 3))) + b, 3, 1), 0).reshape(-1, 16, 4, 2, 4, 2)
    p = a.max(axis=(3, 5))
    return seen, a, p, np.tensordot(p, v, ((1, 2, 3), (1, 2, 3)))


# %%
# NumPy's net, and cuDNN's on an H200, read 94 % of the 300 other digits right. A nearest-neighbour rule reads 95 %.

labels, (w, b, v) = T[1497:, :, 0, 0].argmax(axis=1), (array.copy() for array in start)
for i in batches:
    seen, a, p, s = forward(X[i : i + n], w, b, v)
    g = (np.exp(s) / np.exp(s).sum(axis=1, keepdims=True) - T[i : i + n, :, 0, 0]) / n
    da = (a == p[:, :, :, None, :, None]) * (a > 0) * np.tensordot(g, v, 1)[:, :, :, None, :, None]
    v -= rate * np.tensordot(g, p, ((0,), (0,)))
    b -= rate * da.sum(axis=(0, 2, 3, 4, 5))
    w -= rate * np.tensordot(da.reshape(n, 16, 8, 8), seen, ((0, 2, 3), (0, 2, 3)))
actual = forward(X[1497:], w, b, v)[-1].argmax(axis=1)
print(f"by NumPy {(actual == labels).mean():.1%} of the digits are read right")

# %%
# cuDNN has a function for each layer and for each of its gradients. The picture begins with the misread digits, in red.

if device.backend == "cuda":
    W, B, V = (array.copy() for array in start)
    rooms = [Scratch((n, *shape), np.float32) for shape in ((16, 8, 8), (16, 8, 8), (16, 4, 4), (16, 4, 4), (10, 1, 1))]
    pad, whole, pool = cudnn.convolution(padding=1), cudnn.convolution(), cudnn.pooling(cudnn.POOLING_MAX, 2)
    relu, softmax = cudnn.activation(cudnn.ACTIVATION_RELU), (cudnn.SOFTMAX_ACCURATE, cudnn.SOFTMAX_MODE_CHANNEL)
    with offload_args(In(X), In(T), InOut(W), InOut(B), InOut(V), *rooms, device=device) as (dX, dT, dw, db, dv, *rest):
        y, dy, z, dz, q = rest
        y.fill(0)
        tx, ty, tz, tq = (cudnn.tensor(array) for array in (dX[:n], y, z, q))
        tb, fw, fv = cudnn.tensor(db, "C"), cudnn.filter(dw), cudnn.filter(dv)
        for x, t in ((dX[i : i + n], dT[i : i + n]) for i in batches):
            cudnn.convolution_bias_activation_forward(1, tx, x, fw, dw, pad, 1, None, 0, 0, ty, y, tb, db, relu, ty, y)
            cudnn.pooling_forward(pool, 1, ty, y, 0, tz, z)
            cudnn.convolution_forward(1, tz, z, fv, dv, whole, 1, None, 0, 0, tq, q)
            cudnn.softmax_forward(*softmax, 1, tq, q, 0, tq, q)
            cudnn.add_tensor(-1 / n, tq, t, 1 / n, tq, q)  # now q is the gradient
            cudnn.convolution_backward_data(1, fv, dv, tq, q, whole, 1, None, 0, 0, tz, dz)
            cudnn.convolution_backward_filter(-rate, tz, z, tq, q, whole, 1, None, 0, 1, fv, dv)  # a step of SGD
            cudnn.pooling_backward(pool, 1, tz, z, tz, dz, ty, y, 0, ty, dy)
            cudnn.activation_backward(relu, 1, ty, y, ty, dy, ty, y, 0, ty, dy)
            cudnn.convolution_backward_bias(-rate, ty, dy, 1, tb, db)
            cudnn.convolution_backward_filter(-rate, tx, x, ty, dy, pad, 1, None, 0, 1, fw, dw)
    assert abs(W - start[0]).max() > 0.01
    actual = forward(X[1497:], W, B, V)[-1].argmax(axis=1)
    print(f"by cuDNN {(actual == labels).mean():.1%}")
assert (actual == labels).mean() > 0.9

if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 10, figsize=(8, 4), layout="constrained", subplot_kw={"xticks": [], "yticks": []})
    for axis, i in zip(axes.flat, np.argsort(actual == labels, kind="stable"), strict=False):  # misread digits first
        axis.imshow(np.load(demo.DIGITS)["images"][1497 + i].reshape(8, 8), cmap="gray_r")
        axis.set_title(actual[i], color="black" if actual[i] == labels[i] else "red")
    figure.savefig(options.plot)
