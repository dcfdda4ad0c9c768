"""Kernels in Python: a wing's wake
================================

The sheet of vortices behind a wing rolls up at both ends. Each vortex moves all others, by a kernel in Python.
"""

import argparse

import numpy as np

from offload_args import Device, In, InOut, Out, Scratch, kernel, launch, offload_args
from offload_args.kernels import Linear1D, barrier, elementwise, here, reduce, shared

# %%
# Points of the plane are complex numbers. ``elementwise`` makes a kernel of a formula, and ``reduce`` a sum. In
# ``velocities`` the threads of a block load 64 vortices at a time into shared memory. Each thread sums for one vortex.

move = elementwise("z += 0.05 * (1.5 * v - 0.5 * w)", z=InOut[np.complex128], v=In[np.complex128], w=In[np.complex128])
impulse = reduce("sum", "strength * z", strength=np.float64, z=np.complex128)


@kernel
def velocities(z: In[np.complex128], strength: In[np.float64], v: Out[np.complex128].by(Linear1D())):
    place = shared(64, np.complex128)
    flow, own = 0j, z[here.index()]
    for first in range(0, z.size, 64):
        place[here.thread()] = z[first + here.thread()]
        barrier()
        for k in range(64):
            d = own - place[k]
            flow += strength[first + k] / (d.real * d.real + d.imag * d.imag + 0.01) * d
        barrier()
    for i in v.mine():
        v[i] = 1j / (2 * np.pi) * flow


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the sheet at the wing and behind it (needs matplotlib)")
options = parser.parse_args()
device, angle = Device(options.device or Device.default().name), np.pi * (np.arange(256) + 0.5) / 256
wing, strength = np.cos(angle) + 0j, np.cos(angle) * np.pi / 256
z, scratch = wing.copy(), Scratch(256, np.complex128)
with offload_args(z, In(strength), scratch, scratch, device=device) as (dz, ds, dv, dw):
    launch(velocities, dz, ds, dw, block=64)
    for v, w in 40 * [(dv, dw), (dw, dv)]:  # dw has the velocities of the step before
        launch(velocities, dz, ds, v, block=64)
        launch(move, dz, v, w)
np.testing.assert_allclose(impulse(strength, z, device=device), strength @ wing, rtol=1e-12)
expected, steps = wing.copy(), []  # the same steps by NumPy
for _ in range(80):
    d = expected[:, None] - expected
    steps.append(1j / (2 * np.pi) * (d / (d.real**2 + d.imag**2 + 0.01)) @ strength)
    expected += 0.05 * (1.5 * steps[-1] - 0.5 * steps[-2:][0])
np.testing.assert_allclose(z, expected, rtol=1e-9, atol=1e-9)
print(f"the middle of the wake is at {z[128].imag:.4f}")

if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.9), layout="constrained", subplot_kw={"aspect": "equal"})
    axes.plot(wing.real, wing.imag, z.real, z.imag)
    figure.savefig(options.plot)
