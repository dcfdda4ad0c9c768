"""Compares csrc/backends/hip.def and hip.c with AMD's headers: python scripts/check_hip_headers.py INCLUDE...

INCLUDE is a folder that has hip/hip_runtime_api.h, of any release from 5.2 on. A parameter agrees if it is a pointer in
both, or has the same size in both. The numbers and structures agree if tests/doubles/hip_facts.c compiles. The script
prints each difference, and exits with 1 if there is a difference.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from clang import cindex

ROOT = Path(__file__).parents[1]
DEF = ROOT / "csrc" / "backends" / "hip.def"
BYTES = {"int": 4, "unsigned": 4, "size_t": 8, "unsigned char": 1, "unsigned short": 2}


def ours() -> dict[str, list[str]]:
    """Return the parameters of each function of hip.def: "pointer", or the number of bytes."""
    text = re.sub(r"/\*.*?\*/", "", DEF.read_text(), flags=re.DOTALL)
    ours = {}
    for symbol, parameters in re.findall(r"(?:DRIVER|OPTIONAL)\(\w+, (\w+),\s*([^)]*)\)", text):
        kinds = []
        for parameter in parameters.split(","):
            kind = re.sub(r"\w+$", "", parameter.strip()).strip()
            pointer = kind.endswith("*") or kind.startswith("gpu_")
            kinds += [] if parameter.strip() == "void" else ["pointer" if pointer else f"{BYTES[kind]} bytes"]
        ours[symbol] = kinds
    return ours


def theirs(include: Path) -> dict[str, list[str]]:
    """Return the same for each function of a header, with the function's result as the last item."""
    own = subprocess.run(["gcc", "-print-file-name=include"], capture_output=True, text=True, check=True)
    arguments = ["-x", "c", "-std=c11", f"-I{include}", "-isystem", own.stdout.strip()]
    arguments += ["-D__HIP_PLATFORM_AMD__=1", "-D__HIP_DISABLE_CPP_FUNCTIONS__"]
    unit = cindex.Index.create().parse(str(include / "hip" / "hip_runtime_api.h"), arguments)
    faults = [str(diagnostic) for diagnostic in unit.diagnostics if diagnostic.severity >= cindex.Diagnostic.Error]
    if faults:
        raise ValueError(f"{include}: {faults[0]}")

    def kind(type_: cindex.Type) -> str:
        is_pointer = type_.get_canonical().kind is cindex.TypeKind.POINTER
        return "pointer" if is_pointer else f"{type_.get_size()} bytes"

    return {
        cursor.spelling: [
            *(kind(argument.type) for argument in cursor.get_arguments()),
            kind(cursor.result_type),
        ]
        for cursor in unit.cursor.get_children()
        if cursor.kind is cindex.CursorKind.FUNCTION_DECL
    }


def other_facts(include: Path) -> list[str]:
    """Return the compiler's messages about numbers and structures that differ."""
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE=", "-fsyntax-only", "-isystem", str(include)]
    command += [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc' / 'include'}", str(ROOT / "tests" / "doubles" / "hip_facts.c")]
    ran = subprocess.run(command, capture_output=True, text=True)
    said = [line for line in ran.stderr.splitlines() if "error:" in line]
    return [f"{include}: {line}" for line in said] if ran.returncode else []


def main() -> int:
    faults = []
    declared, optional = ours(), re.findall(r"OPTIONAL\(\w+, (\w+)", DEF.read_text())
    for include in sys.argv[1:]:
        there = theirs(Path(include))
        for symbol, parameters in declared.items():
            if symbol not in there and symbol in optional:
                continue
            if symbol not in there:
                faults.append(f"{include}: there is no {symbol}")
            elif there[symbol] != [*parameters, "4 bytes"]:
                faults.append(f"{include}: {symbol} has {there[symbol]}, hip.def {[*parameters, '4 bytes']}")
        faults += other_facts(Path(include))
        print(f"{include}: {len(declared)} functions compared, and numbers and structures")
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
