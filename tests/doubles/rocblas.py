"""Writes a double of rocBLAS in C, for the double of HIP: each function is that of the double of cuBLAS.

    python tests/doubles/rocblas.py > rocblas.c

The prototypes are those of bindings/api/rocblas.json. Enums are turned into cuBLAS's; all else is the same. Functions
without a counterpart are left out.
"""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import cublas

# rocBLAS's values of an enum as cuBLAS's.
ENUMS = {
    "rocblas_operation": ("cublasOperation_t", "{0} - 111"),
    "rocblas_fill": ("cublasFillMode_t", "{0} == 121"),
    "rocblas_side": ("cublasSideMode_t", "{0} == 142"),
    "rocblas_diagonal": ("cublasDiagType_t", "{0} == 132"),
}

PRELUDE = """
typedef int rocblas_status, rocblas_operation, rocblas_fill, rocblas_side, rocblas_diagonal, rocblas_int;
typedef int rocblas_pointer_mode;
typedef int64_t rocblas_stride;
typedef cublasHandle_t rocblas_handle;
typedef void *hipStream_t;
typedef cuComplex rocblas_float_complex;
typedef cuDoubleComplex rocblas_double_complex;
typedef __half rocblas_half;

enum { INTERNAL_ERROR = 6 };

static rocblas_status answer(int status) { return status ? INTERNAL_ERROR : 0; }

rocblas_status rocblas_create_handle(rocblas_handle *handle) { return answer(cublasCreate_v2(handle)); }
rocblas_status rocblas_destroy_handle(rocblas_handle handle) { return answer(cublasDestroy_v2(handle)); }
rocblas_status rocblas_set_stream(rocblas_handle h, hipStream_t stream) {
  return answer(cublasSetStream_v2(h, stream));
}
rocblas_status rocblas_get_stream(rocblas_handle h, hipStream_t *stream) {
  return answer(cublasGetStream_v2(h, stream));
}
rocblas_status rocblas_set_pointer_mode(rocblas_handle h, rocblas_pointer_mode mode) {
  return answer(cublasSetPointerMode_v2(h, mode));
}
rocblas_status rocblas_get_pointer_mode(rocblas_handle h, rocblas_pointer_mode *mode) {
  return answer(cublasGetPointerMode_v2(h, mode));
}
rocblas_status rocblas_get_version_string(char *text, size_t size) {
  const char version[] = "4.4.1.double";
  if (size < sizeof version) return 11;
  memcpy(text, version, sizeof version);
  return 0;
}
"""


def counterpart(name: str, there: dict[str, Any]) -> str | None:
    """Return cuBLAS's name of a function of rocBLAS."""
    words = name.removeprefix("rocblas_").removesuffix("_64").split("_")
    base = "cublas" + "".join(word[:1].upper() + word[1:] for word in words)
    wide = "_64" if name.endswith("_64") else ""
    return next((one for one in (f"{base}_v2{wide}", f"{base}{wide}") if one in there), None)


def double(name: str, function: dict[str, Any], partner: str, there: dict[str, Any]) -> str | None:
    """Return the C text of one function; None if the other's parameters are not the same."""
    wanted = there["parameters"]
    if len(wanted) != len(function["parameters"]):
        return None
    arguments = []
    for (label, kind), (_, other) in zip(function["parameters"], wanted, strict=True):
        enum, expression = ENUMS.get(kind, ("", "{0}"))
        if enum != (other if other.startswith(("cublas", "cudaDataType")) and "Handle" not in other else ""):
            return None
        arguments.append(expression.format(label))
    parameters = cublas.declared(function)
    return f"rocblas_status {name}({parameters}) {{ return answer({partner}({', '.join(arguments)})); }}\n"


def main() -> None:
    """Print the C source: that of cuBLAS's double, and rocBLAS's functions."""
    api = json.loads((cublas.API / "rocblas.json").read_text())["functions"]
    there = json.loads((cublas.API / "cublas.json").read_text())["functions"]
    base = io.StringIO()
    with contextlib.redirect_stdout(base):
        cublas.main()
    print(base.getvalue(), PRELUDE)
    for name, function in api.items():
        partner = counterpart(name, there)
        if f"rocblas_status {name}(" not in PRELUDE and partner and f" {partner}(" in base.getvalue():
            text = double(name, function, partner, there[partner])
            if text:
                print(text)


if __name__ == "__main__":
    main()
