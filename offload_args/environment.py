"""The names of this package's environment variables, and a warning about unknown ones."""

from __future__ import annotations

import os
import warnings
from typing import Final

from ._table import LIBRARIES
from .display import nearest
from .errors import OffloadWarning

__all__ = ["KNOWN", "warn_of_unknown"]

PREFIX: Final = "OFFLOAD_ARGS_"
_SETTINGS: Final = (
    "ACCELERATE CACHE COHERENT DEVICE GUARD HIPRTC INFO MEMORY_LIMIT NVRTC NVTX PINNED_LIMIT PROGRESS RECORD RESIDENCY "
    "RUN THREADS TRACE"
)
#: The variables of docs/reference/environment.md, without the prefix.
KNOWN: Final = frozenset([*_SETTINGS.split(), *(name.upper() for name in LIBRARIES)])

# The variables of the sources' own tests and benchmarks.
_OF_TESTS: Final = frozenset(
    "COLLECTIVES_DOUBLE GALLERY MODEL_SEED MODEL_STEPS NO_DRIVER RANDOM_CALLS RANDOM_KERNELS REQUIRE WHEEL".split()
)


def warn_of_unknown() -> None:
    """Warn of each variable whose name begins as this package's variables do, and which the package does not read."""
    for variable in sorted(os.environ):
        name = variable.removeprefix(PREFIX)
        if variable == name or name in KNOWN or name in _OF_TESTS or name.startswith("TEST_"):
            continue
        likely = (
            nearest(name, KNOWN).replace("did you mean ", f"did you mean {PREFIX}").replace(" or ", f" or {PREFIX}")
        )
        remedy = likely or "; the page Environment variables of the documentation lists all"
        warnings.warn(
            f"offload_args: the environment variable {variable} has no effect{remedy}", OffloadWarning, stacklevel=3
        )
