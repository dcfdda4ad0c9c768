"""The constants of cuBLASLt that a body written by hand has are those of its header, as the api file has them."""

from __future__ import annotations

import json
import re

import pytest

from bindings import roles

SOURCE = (roles.HERE.parent / "csrc" / "call" / "matmul.c").read_text()
API = json.loads((roles.HERE / "api" / "cublaslt.json").read_text())["enums"]
CONSTANTS = {name: value for values in API.values() for name, value in values.items()}
PREFIXES = {
    "layout_attribute": "CUBLASLT_MATRIX_LAYOUT_",
    "order": "CUBLASLT_",
    "product_attribute": "CUBLASLT_MATMUL_DESC_",
    "transform_attribute": "CUBLASLT_MATRIX_",
}
RENAMED = {"BATCH_STRIDE": "STRIDED_BATCH_OFFSET"}


def values_of(enum: str) -> dict[str, int]:
    """Return the constants of an enum of the source."""
    listed = re.search(rf"enum {enum} \{{(.*?)\}};", SOURCE, re.DOTALL)
    assert listed
    found: dict[str, int] = {}
    for one in listed[1].split(","):
        name, _, value = one.partition("=")
        found[name.strip()] = int(value) if value else len(found)
    return found


@pytest.mark.parametrize("enum", PREFIXES)
def test_constants_by_hand_are_those_of_the_header(enum: str) -> None:
    found = values_of(enum)
    assert len(found) >= 4
    for name, value in found.items():
        theirs = RENAMED.get(name, name).replace("TRANSFORM_", "TRANSFORM_DESC_")
        assert CONSTANTS[PREFIXES[enum] + theirs] == value, name


def test_the_bits_of_epilogues_are_those_of_the_header() -> None:
    bits = values_of("epilogue")
    sums = {
        "RELU_AUX_BIAS": ("RELU", "AUX", "BIAS"),
        "GELU_AUX_BIAS": ("GELU", "AUX", "BIAS"),
        "DRELU_BGRAD": ("DRELU", "AUX", "BGRAD"),
        "DGELU_BGRAD": ("DGELU", "AUX", "BGRAD"),
        "BGRADA": ("BGRADA",),
        "BGRADB": ("BGRADB",),
    }
    for name, parts in sums.items():
        assert CONSTANTS[f"CUBLASLT_EPILOGUE_{name}"] == sum(bits[one] for one in parts), name
    for name, value in values_of("scale_mode").items():
        assert CONSTANTS[f"CUBLASLT_MATMUL_MATRIX_{name}"] == value, name
    assert f"MIN_ALIGNMENT_A = {CONSTANTS['CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES']}," in SOURCE
    assert f"FILL_FULL = {CONSTANTS['CUBLAS_FILL_MODE_FULL']}," in SOURCE
