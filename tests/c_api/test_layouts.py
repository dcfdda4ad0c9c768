"""The structs and constants of the C API have the layouts that programs compiled earlier expect.

layouts.txt has the layouts of the minor version that it names. After a change of the version, `python
tests/c_api/test_layouts.py` writes it anew.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

INCLUDE = Path(__file__).parents[2] / "csrc" / "include"
RECORD = Path(__file__).with_name("layouts.txt")
HEADERS = ("core.h", "launch.h", "python.h")  # programs that use the other headers are for one minor version
LISTS = (("dtypes", "OA_DTYPE", ""), ("statuses", "OA_STATUS", ""), ("trace_kinds", "OA_TRACE_KIND", "TRACE_"))


def names(kind: str, text: str) -> list[tuple[str, list[str]]]:
    """Return each struct with its fields, or each enum with its constants."""
    pattern = {"struct": r"typedef struct (\w+) \{(.*?)\n\} \1;", "enum": r"\nenum ?(\w*) \{(.*?)\};"}[kind]
    names = []
    for name, body in re.findall(pattern, text, re.DOTALL):
        if kind == "struct":
            body = re.sub(r"\(\*(\w+)\)\([^;]*\)", r"\1", body)
            members = re.findall(r"(\w+)(?:\[\d+\])?[,;]", body)
        else:
            members = re.findall(r"^\s*(OA_\w+)|, (OA_\w+)", body, re.MULTILINE)
            members = [name or other for name, other in members]
        names.append((name, members))
    return names


def layouts() -> str:
    """Return a line for each struct, each field and each constant."""
    headers = [(INCLUDE / "offload_args" / name).read_text() for name in HEADERS]
    text = re.sub(r"/\*.*?\*/", "", "".join(headers), flags=re.DOTALL)
    lines = []
    for name, fields in names("struct", text):
        lines.append(f'printf("{name}: %zu bytes\\n", sizeof({name}));\n')
        lines += [f'printf("{name}.{field}: at %zu\\n", offsetof({name}, {field}));\n' for field in fields]
    for _, constants in names("enum", text):
        lines += [
            f'printf("{constant} = %d\\n", (int){constant});\n'
            for constant in constants
            if not constant.endswith("_COUNT")
        ]
    for file, macro, prefix in LISTS:
        lines.append(
            f'#define {macro}(name, ...) printf("OA_{prefix}" #name " = %d\\n", (int)OA_{prefix}##name);\n'
            f'#include "offload_args/{file}.def"\n#undef {macro}\n'
        )
    api = re.search(r"typedef struct oa_python_api \{.*?\} oa_python_api;", headers[-1], re.DOTALL)
    assert api is not None
    source = (
        '#include <stdio.h>\n#include "offload_args/launch.h"\ntypedef struct object PyObject;\n'
        f"typedef void (*oa_function)(void);\n{api[0]}\nint main(void) {{\n"
        'printf("version %d.%d\\n", OA_VERSION / 10000, OA_VERSION / 100 % 100);\n' + "".join(lines) + "}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "layouts")
        subprocess.run(["gcc", "-x", "c", f"-I{INCLUDE}", "-o", program, "-"], input=source, text=True, check=True)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def test_structs_and_constants_change_with_a_step_of_the_version_alone() -> None:
    assert layouts() == RECORD.read_text(), "undo it, or step the minor version and write layouts.txt anew"


if __name__ == "__main__":
    RECORD.write_text(layouts())
