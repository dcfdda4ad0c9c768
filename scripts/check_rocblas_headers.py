"""Compares bindings/api with AMD's headers of rocBLAS: python scripts/check_rocblas_headers.py INCLUDE...

INCLUDE is a folder that has rocblas/rocblas.h. A header of version 5 or later has to differ from the header of version
4 by exactly the entries of [newer] in roles/rocblas.toml: it has the additions up to its version, and lacks the
functions that [newer] lacks. An earlier header has none of the additions, and all of these functions. Other headers
whose version bindings/api lacks are named and left out. The script prints each difference. It exits with 1 if there is
a difference, or if no header was compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bindings import headers, roles  # noqa: E402


def _newest(four: Any, version: str) -> Any:
    """Return the required contents of a header of version 5 or later, by the header of version 4 and [newer]."""
    labels = roles.read_roles("rocblas")
    newer = json.loads((ROOT / "bindings" / "api" / f"{labels['newer']['api']}.json").read_text())
    since = {
        f"rocblas_{name}": label["since"]["version"]
        for label in labels["family"].values()
        if "since" in label
        for name in label["bind"]
    }
    here = tuple(map(int, version.split(".")[:2]))
    added = {
        name: function
        for name, function in newer["functions"].items()
        if tuple(map(int, since[name].split("."))) <= here
    }
    kept = {name: function for name, function in four["functions"].items() if name not in labels["newer"]["lacks"]}
    enums = {name: members | newer["enums"].get(name, {}) for name, members in four["enums"].items()}
    return {"functions": kept | added, "enums": enums}


def _faults_of_newer(header: Path, there: Any) -> list[str]:
    """Return the contradictions between the header of a version before 5 and [newer]."""
    newer = roles.read_roles("rocblas")["newer"]
    added = json.loads((ROOT / "bindings" / "api" / f"{newer['api']}.json").read_text())
    constants = {name for members in there["enums"].values() for name in members}
    early = [symbol for symbol in added["functions"] if symbol in there["functions"]]
    early += [name for members in added["enums"].values() for name in members if name in constants]
    return [
        *(f"{header}: {name} is there, which [newer] calls new" for name in early),
        *(
            f"{header}: {symbol} is not there, which [newer] calls gone"
            for symbol in newer["lacks"]
            if symbol not in there["functions"]
        ),
    ]


def main() -> int:
    own = subprocess.run(["gcc", "-print-file-name=include"], capture_output=True, text=True, check=True)
    known = {}
    for name in ("rocblas", "rocblas-2"):
        api = json.loads((ROOT / "bindings" / "api" / f"{name}.json").read_text())
        known[api["version"]] = api
    faults, compared = [], 0
    for include in map(Path, sys.argv[1:]):
        header = include / "rocblas" / "rocblas.h"
        extracted = headers.extract(header, [include, Path(own.stdout.strip())], roles.read_roles("rocblas")["header"])
        there = json.loads(headers.to_json(extracted))
        ours = known.get(there["version"])
        if int(there["version"].split(".")[0]) >= 5:
            ours = _newest(next(iter(known.values())), there["version"])
        elif ours:
            faults += _faults_of_newer(header, there)
        if ours is None:
            print(f"{header}: version {there['version']}, not compared: bindings/api has {', '.join(known)}")
            continue
        compared += 1
        for part in ("functions", "enums"):
            for entry in there[part].values() if part == "functions" else ():
                entry.pop("deprecated", None)  # bindings/api is older than this key
            names = {*ours[part], *there[part]}
            faults += [f"{header}: {name} differs" for name in names if ours[part].get(name) != there[part].get(name)]
        print(f"{header}: version {there['version']}, {len(there['functions'])} functions compared")
    print(*sorted(faults), sep="\n", end="\n" if faults else "")
    return 1 if faults or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
