"""Writes a double of cuBLAS in C, for the double of a GPU: each function computes by the CBLAS function of its name.

    python tests/doubles/cublas.py > cublas.c

The prototypes are those of bindings/api/cublas.json, so that a call with another one goes wrong. The double checks its
pointers: scalars are where the pointer mode says, and arrays on the device. Functions that CBLAS does not have are not
in it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

API = Path(__file__).parents[2] / "bindings" / "api"

ENUMS = {
    "cublasOperation_t": "{0} == 0 ? 111 : {0} == 1 ? 112 : 113",
    "cublasFillMode_t": "{0} == 0 ? 122 : 121",
    "cublasSideMode_t": "{0} == 0 ? 141 : 142",
    "cublasDiagType_t": "{0} == 0 ? 131 : 132",
}

PRELUDE = """
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { float parts[2]; } cuComplex;
typedef struct { double parts[2]; } cuDoubleComplex;
typedef int cublasStatus_t, cublasOperation_t, cublasFillMode_t, cublasSideMode_t, cublasDiagType_t;
typedef struct handle { void *stream; int mode; } *cublasHandle_t;

int cuPointerGetAttributes(unsigned count, int *attributes, void **values, unsigned long long address);

enum { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13 };

static int kind_of(const void *pointer) { /* 0: plain memory of the host, 1: pinned, 2: of a device */
  int type = 0, attribute = 2;
  void *values[] = {&type};
  cuPointerGetAttributes(1, &attribute, values, (uintptr_t)pointer);
  return type;
}
static int is_scalar(const struct handle *handle, const void *pointer) {
  return handle && pointer && (handle->mode ? kind_of(pointer) != 0 : kind_of(pointer) != 2);
}
static int is_array(const void *pointer) { return !pointer || kind_of(pointer) != 0; }

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) { return (*handle = calloc(1, sizeof **handle)) ? SUCCESS : 3; }
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) { free(handle); return SUCCESS; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, void *stream) { handle->stream = stream; return SUCCESS; }
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, void **stream) { *stream = handle->stream; return SUCCESS; }
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, int mode) { handle->mode = mode; return SUCCESS; }
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, int *mode) { *mode = handle->mode; return SUCCESS; }
cublasStatus_t cublasGetProperty(int part, int *value) { *value = part ? 0 : 13; return SUCCESS; }
"""

C_TYPES = {"blasint": "int", "enum": "int", "size_t": "size_t", "void": "void", "float": "float", "double": "double"}


def c_type(text: str) -> str:
    """Return a C type of CBLAS in types that the double has."""
    if text.endswith("*"):
        return "const void *" if text.startswith("const") else "void *"
    return "int" if text.startswith("enum") else C_TYPES[text.removeprefix("const ")]


def partner(name: str, cblas: dict) -> str | None:
    """Return the name of the CBLAS function that computes the same."""
    base = "cblas_" + name.removeprefix("cublas").removesuffix("_64").removesuffix("_v2").lower()
    return next((one for one in (base + "_sub", base) if one in cblas), None)


def double(name: str, function: dict, partner: str, there: dict) -> str:
    """Return the C text of one function."""
    given = [one for one in function["parameters"] if one[0] != "handle"]
    wanted = list(there["parameters"])
    arguments = []
    if wanted[0][0].lower() in ("order", "layout"):
        arguments.append("102")
        wanted = wanted[1:]
    is_trmm, copies = "trmm" in partner, ""
    if is_trmm:  # cuBLAS's has its result apart
        item = given[-2][1].removesuffix("*")
        copies = (
            f"  for (int64_t j = 0; j < n && C != B; j++)\n"
            f"    memcpy(C + j * ldc, B + j * ldb, (size_t)(m > 0 ? m : 0) * sizeof({item}));\n"
        )
        given_for_call = [*given[:-4], *given[-2:]]
    else:
        given_for_call = given
    checks = []
    scalar_names = {"alpha", "beta", "c", "s", "a", "b", "result", "param", "d1", "d2", "x1", "y1"}
    scalar_only = "rotg" in partner or "rotmg" in partner
    for label, kind in given:
        if kind.endswith("*"):
            scalar = scalar_only or (label in scalar_names)
            checks.append(f"is_scalar(handle, {label})" if scalar else f"is_array({label})")
    for (_, kind), (label, from_kind) in zip(wanted, given_for_call, strict=False):
        if from_kind in ENUMS:
            arguments.append(ENUMS[from_kind].format(label))
        elif kind.endswith("*"):
            arguments.append(label)
        elif from_kind.endswith("*"):
            arguments.append(f"*{label}")
        else:
            arguments.append(f"(int){label}")
    call = f"scipy_{partner}({', '.join(arguments)})"
    if there["returns"] != "void":
        if "cblas_i" in partner:
            call = f"*result = n > 0 && incx > 0 ? 1 + {call} : 0"
        else:
            call = f"*result = {call}"
    parameters = ", ".join(f"{kind} {label}" for label, kind in function["parameters"])
    declared = ", ".join(c_type(kind) for _, kind in there["parameters"])
    return (
        f"{c_type(there['returns'])} scipy_{partner}({declared});\n"
        f"cublasStatus_t {name}({parameters}) {{\n"
        f"  if (!({' && '.join(checks)})) return EXECUTION_FAILED;\n"
        f"{copies}  {call};\n  return SUCCESS;\n}}\n"
    )


def main() -> None:
    """Write the double to standard output."""
    cublas = json.loads((API / "cublas.json").read_text())["functions"]
    cblas = json.loads((API / "cblas.json").read_text())["functions"]
    sys.stdout.write(PRELUDE)
    for name, function in cublas.items():
        there = partner(name, cblas)
        if there is not None and function["parameters"] and function["parameters"][0][0] == "handle":
            sys.stdout.write("\n" + double(name, function, there, cblas[there]))


if __name__ == "__main__":
    main()
