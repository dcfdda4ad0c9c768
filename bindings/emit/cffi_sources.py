"""Writes the C sources of the cffi modules."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from pathlib import Path

from ..declarations import core_declarations
from ..roles import Library
from .wrappers import prototypes


def cffi_sources(libraries: Iterable[Library], out: Path) -> None:
    """Writes _native.c and one _<library>.c each, for cp311-abi3."""
    from cffi import FFI  # the build's own dependency; not needed to check

    core = FFI()
    core.cdef(core_declarations())
    core.set_source("offload_args._native", '#include "offload_args/testing.h"', py_limited_api=True)
    modules = [(core, out / "_native.c")]
    for library in libraries:
        own = FFI()
        own.include(core)
        own.cdef("\n".join(prototypes(library)))
        source = f'#include "offload_args_{library.name}.h"'
        own.set_source(f"offload_args._{library.name}", source, py_limited_api=True)
        modules.append((own, out / f"_{library.name}.c"))
    for ffi, path in modules:
        path.unlink(missing_ok=True)
        with contextlib.redirect_stdout(io.StringIO()):
            ffi.emit_c_code(str(path))
