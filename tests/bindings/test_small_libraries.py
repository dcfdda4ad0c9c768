"""A library is an api file and a roles file. Each of these three small libraries lacks something that cuBLAS has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # last, so that the installed offload_args is imported, not its sources

from bindings import emit, roles  # noqa: E402
from helpers.core_objects import core_objects  # noqa: E402

HERE = Path(__file__).parent / "small"
PLAIN = {"header": "vendor.h", "version": "1"}
TINY = {
    "functions": {
        "tiny_divide": {
            "returns": "tiny_status_t",
            "parameters": [["n", "int"], ["x", "const double *"], ["y", "const double *"], ["quotient", "double *"]],
        },
        "tiny_scale_batch": {
            "returns": "void",
            "parameters": [
                ["m", "int"],
                ["n", "int"],
                ["by", "double"],
                ["A", "const double *"],
                ["ld", "int"],
                ["stride_a", "int64_t"],
                ["C", "double *"],
                ["stride_c", "int64_t"],
                ["count", "int"],
            ],
        },
        "tiny_shift": {"returns": "void", "parameters": [["n", "int"], ["by", "float"], ["x", "float *"]]},
        "tiny_sum": {"returns": "double", "parameters": [["n", "int"], ["x", "const double *"]]},
        "tiny_wipe": {"returns": "void", "parameters": [["n", "int"], ["x", "float *"]]},
        "tiny_version": {"returns": "const char *", "parameters": []},
    },
    "enums": {"tiny_status_t": {"TINY_FINE": 5, "TINY_ZERO": 7}},
}
LANES = {
    "functions": {
        "lanes_negate": {"returns": "int", "parameters": [["n", "int64_t"], ["x", "float *"], ["stream", "void *"]]}
    },
    "enums": {},
}
HELD = {
    "functions": {
        "held_create": {"returns": "int", "parameters": [["handle", "held_t *"]]},
        "held_scale": {
            "returns": "int",
            "parameters": [["handle", "held_t"], ["n", "int"], ["by", "const float *"], ["x", "float *"]],
        },
    },
    "enums": {},
}
ROLES = {
    "tiny": """
[library]
name = "tiny"
title = "Tiny"
symbols = ["tiny_{name}"]
status = "tiny_status_t"
success = "TINY_FINE"
[find]
version = { call = "tiny_version", gives = "text" }
[types]
float = "f32"
double = "f64"
[family.shift]
since = { version = "3.1", why = "versions before 3.1 add it twice" }
bind.shift = "Adds a number to each element."
parameters = { n = "size", by = "scalar", x = "inout elements(n)" }
[family.wipe]
since = { version = "3.1.1", why = "versions before 3.1.1 crash in it" }
bind.wipe = "Sets each element to 0."
parameters = { n = "size", x = "out elements(n)" }
[family.divide]
bind.divide = "Divides one array by another."
parameters = { n = "size", x = "in elements(n)", y = "in elements(n)", quotient = "out elements(n)" }
[family.scale_batch]
bind.scale_batch = "Multiplies matrices by a number."
[family.scale_batch.parameters]
m = "size"
n = "size"
by = "scalar"
A = "in strided(matrix(m, n, ld), stride_a, count)"
ld = "ld"
stride_a = "stride"
C = "out strided(matrix(m, n, ld), stride_c, count)"
stride_c = "stride"
count = "size"
[family.sum]
bind.sum = "Adds up the elements."
parameters = { n = "size", x = "in elements(n)", result = "returned" }
""",
    "lanes": """
[library]
name = "lanes"
title = "Lanes"
backend = "sim"
symbols = ["lanes_{name}"]
status = "int"
stream = "argument"
[types]
float = "f32"
[family.negate]
bind.negate = "Negates each element."
parameters = { n = "size", x = "inout elements(n)", stream = "stream" }
""",
    "held": """
[library]
name = "held"
title = "Held"
backend = "sim"
symbols = ["held_{name}"]
status = "int"
[handle]
type = "held_t"
create = "held_create"
[types]
float = "f32"
[family.scale]
bind.scale = "Multiplies each element by a number."
parameters = { n = "size", by = "scalar", x = "inout elements(n)" }
""",
}


def build_libraries(folder: Path) -> list[roles.Library]:
    """Return the three libraries, read from files as the build reads them."""
    for name in ("api", "roles"):
        (folder / name).mkdir()
    for name, api in {"tiny": TINY, "lanes": LANES, "held": HELD}.items():
        (folder / "api" / f"{name}.json").write_text(json.dumps(PLAIN | api))
        (folder / "roles" / f"{name}.toml").write_text(ROLES[name])
    return roles.load(folder)


def run(*command: Any) -> None:
    done = subprocess.run([str(argument) for argument in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.slow
def test_a_library_without_handle_stream_or_pointer_mode_is_two_files(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    libraries = build_libraries(tmp_path)
    out = tmp_path / "generated"
    emit.emit(libraries, out)
    include = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc' / 'include'}", f"-I{out / 'include'}"]
    generated = sorted((out / "libraries").glob("*.c"))
    options = ["-std=gnu11", "-O0", "-Wall", "-Wextra", "-Werror"]
    vendor, user = tmp_path / "libvendor.so", tmp_path / "user"
    run("gcc", *options, "-shared", "-fPIC", HERE / "vendor.c", "-o", vendor)
    core = core_objects(tmp_path_factory).values()
    run("gcc", *options, *include, HERE / "user.c", *generated, *core, "-o", user, "-lpthread", "-ldl", "-lm")
    run(user, vendor)


def test_what_a_library_lacks_is_not_offered(tmp_path: Path) -> None:
    tiny, lanes, held = sorted(
        build_libraries(tmp_path), key=lambda library: ["tiny", "lanes", "held"].index(library.name)
    )
    assert [(library.stream, library.scalars) for library in (tiny, lanes, held)] == [
        ("none", "by value"),
        ("argument", "host"),
        ("none", "host"),
    ]
    record = {
        function.name: emit.record(library, function)
        for library in (tiny, lanes, held)
        for function in library.functions
    }
    n, x = emit.Role("size", "n"), emit.Role("inout", "x", "f32")
    assert record["negate"] == [n, x]  # the core passes the stream
    assert record["scale"] == [n, emit.Role("scalar", "by", "f32"), x]
    assert not held.has_device_form(held.functions[0]) and tiny.has_device_form(tiny.functions[1])
