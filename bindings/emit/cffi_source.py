"""Writes the C source of the cffi module."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from ..declarations import core_declarations


def cffi_source(out: Path) -> None:
    """Writes _native.c, cffi's module of the core, for cp311-abi3."""
    from cffi import FFI  # the build's own dependency; not needed to check

    core = FFI()
    core.cdef(core_declarations())
    core.set_source("offload_args._native", '#include "offload_args/testing.h"', py_limited_api=True)
    path = out / "_native.c"
    path.unlink(missing_ok=True)
    with contextlib.redirect_stdout(io.StringIO()):
        core.emit_c_code(str(path))
