"""A smoke test of an installed wheel. Run it outside the checkout, in an environment that has nothing but the wheel."""

import importlib.metadata
import sys
from pathlib import Path

import numpy as np

import offload_args as package
from offload_args import blas, offload_args
from offload_args.command import main

folder = Path(package.__file__).parent
assert folder.parent.name == "site-packages", folder
assert package.__version__ == importlib.metadata.version("offload-args")
assert (folder / "py.typed").is_file()
assert (folder / "include" / "offload_args.h").is_file() and (folder / "include" / "offload_args" / "core.h").is_file()
assert (folder / "include" / "offload_args_cublas.h").is_file()
assert not list(folder.glob("*.c"))

A, x, y = np.arange(6.0).reshape(2, 3), np.ones(3), np.empty(2)
with offload_args(A, x, y) as (dA, dx, dy):
    blas.gemv(1.0, dA, dx, 0.0, dy)
assert y.tolist() == [3.0, 12.0], y
assert main(["info"]) == 0
assert main(["demo"]) == 0
print(f"offload-args {package.__version__} works on Python {sys.version.split()[0]}")
