"""Compares bindings/api/hipsparse.json and the calls of `sparse` with AMD's headers of hipSPARSE.

    python scripts/check_hipsparse_headers.py INCLUDE...

INCLUDE is a folder that has hipsparse/hipsparse.h and HIP's headers. The header of the api file's version has to agree
completely. A header of another version may lack the functions of LATER, and the other functions have to take the same
types. Every header needs the numbers that `sparse` uses, and hipsparseSpSV_solve as `sparse` calls it. The script
prints each difference, and exits with 1 if there is a difference.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bindings import headers, roles  # noqa: E402

# The functions that hipSPARSE 2, or 3 before 3.1.1, lacks.
LATER = re.compile(r"hipsparse(CreateConst|Const|GetError|CscGet)\w*")
# The numbers that offload_args/sparse uses in calls of each version.
NUMBERS = {
    "HIPSPARSE_OPERATION_NON_TRANSPOSE": 0,
    "HIPSPARSE_OPERATION_TRANSPOSE": 1,
    "HIPSPARSE_OPERATION_CONJUGATE_TRANSPOSE": 2,
    "HIPSPARSE_INDEX_BASE_ZERO": 0,
    "HIPSPARSE_INDEX_32I": 2,
    "HIPSPARSE_INDEX_64I": 3,
    "HIPSPARSE_ORDER_COL": 1,
    "HIPSPARSE_SPMAT_FILL_MODE": 0,
    "HIPSPARSE_SPMAT_DIAG_TYPE": 1,
    "HIPSPARSE_FILL_MODE_LOWER": 0,
    "HIPSPARSE_FILL_MODE_UPPER": 1,
    "HIPSPARSE_DIAG_TYPE_NON_UNIT": 0,
    "HIPSPARSE_DIAG_TYPE_UNIT": 1,
    "HIPSPARSE_MV_ALG_DEFAULT": 0,
    "HIPSPARSE_CSRMV_ALG2": 3,  # since version 3 also HIPSPARSE_SPMV_CSR_ALG2
    "HIPSPARSE_MM_ALG_DEFAULT": 0,
    "HIPSPARSE_SPSV_ALG_DEFAULT": 0,
    "HIPSPARSE_SPSM_ALG_DEFAULT": 0,
    "HIPSPARSE_SPGEMM_DEFAULT": 0,
    "HIPSPARSE_SPARSETODENSE_ALG_DEFAULT": 0,
    "HIPSPARSE_DENSETOSPARSE_ALG_DEFAULT": 0,
    "HIPSPARSE_CSR2CSC_ALG1": 1,
    "HIPSPARSE_ACTION_NUMERIC": 1,
    "HIP_R_32F": 0,
    "HIP_R_64F": 1,
    "HIP_C_32F": 4,
    "HIP_C_64F": 5,
}


def _types(function: dict[str, Any]) -> list[str]:
    """Return the types of a function. Version 3 made descriptors const that a function only reads."""
    types = [function["returns"], *(c_type for _, c_type in function["parameters"])]
    return [re.sub(r"^const (?=hipsparse)|Const", "", c_type) for c_type in types]


def _faults(header: Path, there: Any, solve: Any, ours: Any) -> list[str]:
    """Return the differences between a header and the api file; `solve`: hipsparseSpSV_solve of the header."""
    faults = []
    if there["version"] == ours["version"]:
        for part in ("functions", "enums"):
            names = {*ours[part], *there[part]}
            faults += [f"{name} differs" for name in names if ours[part].get(name) != there[part].get(name)]
    functions = there["functions"]
    faults += [f"{name} is missing" for name in ours["functions"] if name not in functions and not LATER.match(name)]
    both = ours["functions"].keys() & functions.keys()
    faults += [f"{name} differs" for name in both if _types(functions[name]) != _types(ours["functions"][name])]
    major = int(there["version"].partition(".")[0])
    numbers = {key: value for members in there["enums"].values() for key, value in members.items()}
    needed = NUMBERS | {"HIPSPARSE_ORDER_ROW": 0 if major < 3 else 2}
    faults += [f"{key} is {numbers.get(key)}" for key, value in needed.items() if numbers.get(key) != value]
    if len(solve["parameters"]) != (10 if major < 3 else 9):
        faults.append(f"hipsparseSpSV_solve has {len(solve['parameters'])} parameters")
    return [f"{header}: {fault}" for fault in faults]


def main() -> int:
    own = subprocess.run(["gcc", "-print-file-name=include"], capture_output=True, text=True, check=True)
    labels = roles.read_roles("hipsparse")["header"]
    ours = json.loads((ROOT / "bindings" / "api" / "hipsparse.json").read_text())
    faults = []
    for include in map(Path, sys.argv[1:]):
        header = include / "hipsparse" / "hipsparse.h"
        folders = [include, Path(own.stdout.strip())]
        there, solving = (
            json.loads(headers.to_json(headers.extract(header, folders, labels | wanted)))
            for wanted in ({}, {"functions": "hipsparseSpSV_solve$"})
        )
        faults += _faults(header, there, solving["functions"]["hipsparseSpSV_solve"], ours)
        print(f"{header}: version {there['version']}, {len(there['functions'])} functions compared")
    print(*sorted(faults), sep="\n", end="\n" if faults else "")
    return 1 if faults or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
