"""Compares bindings/api with AMD's headers of rocBLAS: python scripts/check_rocblas_headers.py INCLUDE...

INCLUDE is a folder that has rocblas/rocblas.h. Headers of a version that bindings/api is not of are named and left
out. It prints each difference, and exits with 1 if there is one, or if no header was compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bindings import headers, roles  # noqa: E402


def main() -> int:
    own = subprocess.run(["gcc", "-print-file-name=include"], capture_output=True, text=True, check=True)
    known = {}
    for name in ("rocblas", "rocblas-2"):
        api = json.loads((ROOT / "bindings" / "api" / f"{name}.json").read_text())
        known[api["version"]] = api
    faults, compared = [], 0
    for include in map(Path, sys.argv[1:]):
        header = include / "rocblas" / "rocblas.h"
        found = headers.extract(header, [include, Path(own.stdout.strip())], roles.read_roles("rocblas")["header"])
        there = json.loads(headers.to_json(found))
        ours = known.get(there["version"])
        if ours is None:
            print(f"{header}: version {there['version']}, not compared: bindings/api has {', '.join(known)}")
            continue
        compared += 1
        for part in ("functions", "enums"):
            for one in there[part].values() if part == "functions" else ():
                one.pop("deprecated", None)  # bindings/api was written before headers were asked for it
            names = {*ours[part], *there[part]}
            faults += [f"{header}: {one} differs" for one in names if ours[part].get(one) != there[part].get(one)]
        print(f"{header}: version {there['version']}, {len(there['functions'])} functions compared")
    print(*sorted(faults), sep="\n", end="\n" if faults else "")
    return 1 if faults or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
