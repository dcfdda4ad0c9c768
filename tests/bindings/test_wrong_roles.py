"""`python -m bindings --check` refuses wrong roles files, reports the line of each fault, and prints no traceback."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # last, so that the installed offload_args is imported, not its sources

from bindings import __main__ as workshop  # noqa: E402


def declared(*parameters: str) -> dict[str, Any]:
    """Return a function of the header, whose parameters are texts such as "type name"."""
    return {"returns": "v_status_t", "parameters": [parameter.rsplit(" ", 1)[::-1] for parameter in parameters]}


def scale(number: str) -> dict[str, Any]:
    sizes = (
        "v_handle_t handle",
        "v_op_t op",
        "int m",
        "int n",
        f"const {number} * by",
        f"const {number} * A",
        "int lda",
    )
    return declared(*sizes, f"{number} * C", "int ldc")


API = {
    "header": "vendor.h",
    "version": "1",
    "functions": {
        "v_sscale": scale("float"),
        "v_dscale": scale("double"),
        "v_sum": declared("v_handle_t handle", "int n", "const float * x", "int inc", "float * result"),
        "v_create": declared("v_handle_t * handle"),
        "v_set_stream": declared("v_handle_t handle", "void * stream"),
        "v_version": declared("int * version"),
        "v_odd": declared("void (*)(int) callback"),
        "v_make_desc": declared("v_desc_t * desc"),
        "v_end_desc": declared("v_desc_t desc"),
        "v_set_desc": declared("v_desc_t desc", "void * states", "int n"),
        "v_walk": declared("v_handle_t handle", "const v_graph_t * graph", "float * x"),
        "v_tune": declared("v_desc_t desc", "int n", "const void * by"),
    },
    "enums": {"v_status_t": {"V_OK": 0, "V_BAD": 1}, "v_op_t": {"V_N": 0, "V_T": 1}},
}
ROLES = """# A vendor.
[library]
name = "vendor"
title = "Vendor"
backend = "sim"
symbols = ["v_{name}"]
strip = "V_"
status = "v_status_t"
success = "V_OK"
scalars = "host"

[find]
wheels = { vendor-wheel = "vendor/lib/libv*.so" }
version = { call = "v_version", gives = "number" }

[header]
version = ["V_VERSION"]
functions = "v_"
constants = "V_"

[handle]
type = "v_handle_t"
create = "v_create"
set_stream = "v_set_stream"

[types]
float = "f32"
double = "f64"

[enums.operation]
type = "v_op_t"
constants = ["V_N", "V_T"]

[family.scale.bind]
"{t}scale" = ["sd", "Multiplies a matrix by a number."]
[family.scale.parameters]
op = "operation"
m = "size"
n = "size"
by = "scalar"
A = "in matrix(m, n, lda)"
lda = "ld"
C = "inout matrix(n if op == T else m, m if op == T else n, ldc); overwrites if by == 0"
ldc = "ld"

[family.sum]
bind.sum = "Adds up a vector."
[family.sum.parameters]
n = "length"
x = "in vector(n, inc)"
inc = "inc"
result = "result"

[family.walk]
bind.walk = "Walks along a graph."
[family.walk.parameters]
graph = "fields"
weights = "in elements(n * ways)"
n = "size"
ways = "size"
x = "inout elements(n // ways)"

[raw]
v_desc_t = "struct desc *"
v_graph_t = "struct { const float *weights; int n, ways; }"

[object.desc]
type = "v_desc_t"
class = "Desc"
destroy = "v_end_desc"

[family.make_desc]
bind.make_desc = "Makes a desc."
parameters = { desc = "new desc" }
[family.end_desc]
bind.end_desc = "Ends a desc."
parameters = { desc = "ended desc" }
[family.set_desc]
bind.set_desc = "Sets a desc."
[family.set_desc.parameters]
desc = "object desc"
states = "host out bytes(n)"
n = "size"
[family.tune]
bind.tune = "Tunes a desc."
[family.tune.parameters]
desc = "object desc"
n = "size"
by = "host in bytes(n)"

[[not_bound]]
names = "v_odd"
reason = "takes a host callback"
"""


def checked(folder: Path, text: str) -> list[str]:
    """Return the output of --check for a folder with this roles file, without the fault of the missing report."""
    for name in ("api", "roles"):
        (folder / name).mkdir()
    (folder / "api" / "vendor.json").write_text(json.dumps(API))
    (folder / "roles" / "vendor.toml").write_text(text)
    return [fault_line for fault_line in workshop.check(folder) if not fault_line.startswith("report.md")]


def test_the_roles_file_that_the_others_are_made_from_is_right(tmp_path: Path) -> None:
    assert checked(tmp_path, ROLES) == []


IN_A = 'A = "in matrix(m, n, lda)"'
WRONG = [
    # labels
    (IN_A, 'A = "in matrx(m, n, lda)"', "'matrx(m, n, lda)' is not an extent; there are vector,"),
    (IN_A, 'A = "in matrix(m, n)"', "'matrix(m, n)' is not an extent"),
    (IN_A, 'A = "in matrix(m, n, lda"', "'matrix(m, n, lda' is not an expression"),
    (IN_A, 'A = "in"', "'' is not an expression"),
    (IN_A, 'A = ""', "A: '' is not a role"),
    (IN_A, "A = 3", "A: 3 is not a text"),
    (IN_A, 'A = "In matrix(m, n, lda)"', "'In matrix(m, n, lda)' is not a role"),
    (IN_A, 'A = "out matrix(m, n, lda)"', "A: labelled out, but its type is const float *"),
    (IN_A, 'A = "in matrix(m, n, lda); despite const"', "whatever despite const says"),
    (IN_A, 'A = "in matrix(m, n, lda); overwrites if by == 0"', "'overwrites if by == 0' is not understood"),
    (IN_A, 'A = "in matrix(m, n, lda); becomes matrix(n, m, lda)"', "'becomes matrix(n, m, lda)' is not understood"),
    (IN_A, 'A = "in matrix(m, n, lda); may repeat"', "'may repeat' is not understood"),
    (IN_A, 'A = "in matrix(m, n, lda); may be C"', 'may be C, and that does not say "may be A"'),
    (IN_A, 'A = "in matrix(m, n, lda); may be A"', "may be A, which is not another array"),
    (IN_A, 'A = "in strided(matrix(m, n, lda), m)"', "is not an extent"),
    (IN_A, 'A = "in strided(strided(matrix(m, n, lda), m, n), m, n)"', "is not an extent"),
    (IN_A, 'A = "in matrix(m, n, ld=lda)"', "'matrix(m, n, ld=lda)' is not an extent"),
    # expressions
    (IN_A, 'A = "in matrix(q, n, lda)"', "A: q is neither a parameter nor a constant"),
    (IN_A, 'A = "in matrix(m, n, by)"', "'by' is not a leading dimension"),
    (IN_A, 'A = "in matrix(m, n, n)"', "'n' is not a leading dimension"),
    (IN_A, 'A = "in matrix(m, n, lda + 1)"', "'lda + 1' is not a leading dimension"),
    (IN_A, 'A = "in matrix(C, n, lda)"', "A: C is not a size"),
    (IN_A, 'A = "in matrix(op, n, lda)"', "A: op is not a size"),
    (IN_A, 'A = "in matrix(m == n, n, lda)"', "'m == n' is not an expression that C can be written for"),
    (IN_A, 'A = "in matrix(m ** 2, n, lda)"', "'m ** 2' is not an expression that C can be written for"),
    (IN_A, 'A = "in matrix(1.5, n, lda)"', "'1.5' is not an expression that C can be written for"),
    (IN_A, 'A = "in matrix(-1, n, lda)"', "'-1' is not an expression that C can be written for"),
    (IN_A, 'A = "in matrix(99999999999999999999, n, lda)"', "'99999999999999999999' is not an expression"),
    (IN_A, 'A = "in matrix(m if op else n, n, lda)"', "'op' is not an expression that is a test"),
    (IN_A, 'A = "in matrix(m if op == T == N else n, n, lda)"', "'op == T == N' is not an expression that is a test"),
    (IN_A, 'A = "in matrix(m if op in () else n, n, lda)"', "'op in ()' is not an expression that is a test"),
    (IN_A, 'A = "in matrix(m if m == (n == m) else n, n, lda)"', "'n == m' is not an enum, a size, a constant or"),
    (IN_A, 'A = "in matrix(m if by == 0 else n, n, lda)"', "'by' is not an enum, a size, a constant or"),
    (IN_A, 'A = "in triangle(m, n, lda)"', "'m' is not an expression that is a test"),
    (IN_A, 'A = "in triangle(op == T, n, lda, m)"', "'m' is not an expression that is a test"),
    ("overwrites if by == 0", "overwrites if by", "'by' is not an expression that is a test"),
    ("overwrites if by == 0", "overwrites if by = 0", "'by = 0' is not an expression"),
    ("overwrites if by == 0", "overwrites if by == 1", "'by' is not an enum, a size, a constant or"),
    ("overwrites if by == 0", "overwrites if A == 0", "'A' is not an enum, a size, a constant or"),
    ("overwrites if by == 0", "overwrite if by == 0", "'overwrite if by == 0' is not understood"),
    ("overwrites if by == 0", "becomes vector(m)", "'vector(m)' is not an extent"),
    (IN_A, 'A = "in matrix(m // 0, n, lda)"', "'m // 0' divides by zero"),
    (IN_A, 'A = "in elements(m % (n // 0))"', "'n // 0' divides by zero"),
    ('"host in bytes(n)"', '"host in bytes(n n)"', "by: 'host in bytes(n n)' is not an expression"),
    ('"host out bytes(n)"', '"host out bytes(("', "states: 'host out bytes((' is not an expression"),
    # other parameters
    ('by = "scalar"', 'by = "scalar[0]"', "a number of 1 to 8 is needed"),
    ('by = "scalar"', 'by = "scalar[1000]"', "a number of 1 to 8 is needed"),
    ('by = "scalar"', 'by = "returned"', "by: labelled returned, but its type is const float *"),
    ('op = "operation"', 'op = "operations"', "'operations' is not a role"),
    ('op = "operation"', 'op = "size"', "op: labelled size, but its type is v_op_t"),
    ('m = "size"', 'm = "operation"', "m: labelled operation (v_op_t), but its type is int"),
    ('m = "size"', 'm = "stream"', 'm: labelled stream, but [library] stream is not "argument"'),
    ('m = "size"', 'M = "size"\nm = "size"', "m stands there twice"),
    ('m = "size"', 'm = "size"\nm = "size"', "Cannot overwrite a value"),
    ('m = "size"', 'm = "size"\nq = "size"', "the role q names no parameter"),
    ('ldc = "ld"\n', "", "ldc (int) has no role"),
    # fields of a struct
    ('graph = "fields"\n', "", "graph (const v_graph_t *) has no role"),
    ('graph = "fields"\n', "", "the role weights names no parameter"),
    ('ways = "size"\n', "", "ways (int) has no role"),
    ('op = "operation"', 'op = "fields"', "op: labelled fields, but its type is v_op_t: it needs a const pointer to"),
    ('"struct { const float *weights;', '"struct { float **weights;', "graph: labelled fields, but its type is const"),
    ("int n, ways; }", "int n, ways, x; }", "x: another parameter, or field, has the name of this field"),
    ("n // ways", "n / ways", "'n / ways' is not an expression that C can be written for"),
    ("n // ways", "n // x", "x is not a size"),
    # families
    ('["sd", "Multiplies a matrix by a number."]', '["sq", "Multiplies."]', "letters of s, d, c, z and a text"),
    ('["sd", "Multiplies a matrix by a number."]', '["sd"]', "letters of s, d, c, z and a text"),
    ('["sd", "Multiplies a matrix by a number."]', "3", "3 is not a text or a list"),
    ('["sd", "Multiplies a matrix by a number."]', '["sd", ""]', "'' is not a sentence"),
    ('["sd", "Multiplies a matrix by a number."]', '["ss", "Multiplies."]', "sscale: bound twice"),
    ('"{t}scale"', '"{u}scale"', "a name may have {t}, {r} and {form}"),
    ('"{t}scale"', '"{t}scal{"', "a name may have {t}, {r} and {form}"),
    ('"{t}scale"', '"{t}scal"', "the header has none of v_sscal"),
    ("[family.sum.parameters]", "[family.sum.parameter]", "parameter is not understood; there are bind, parameters"),
    ("[family.sum]\n", "[families.sum]\n", "families is not understood"),
    ("[family.sum]\n", '[family.sum]\noptional = "yes"\n', "optional: 'yes' is not true or false"),
    ("[family.sum]\n", '[family.sum]\npointer_mode = "dev"\n', "pointer_mode: 'dev' is not \"device\""),
    ("[family.sum]\n", '[family.sum]\nrequires = "n >= 1"\n', "requires: 'n >= 1' is not a list of texts"),
    ("[family.sum]\n", '[family.sum]\nrequires = ["n > 1"]\n', "'n > 1' is not an expression that compares sizes"),
    ("[family.sum]\n", '[family.sum]\nrequires = ["n >= q"]\n', "requires: q is neither a parameter nor a constant"),
    ("[family.sum]\n", '[family.sum]\nrequires = ["n >= x"]\n', "requires: x is not a size"),
    ("[family.sum]\n", '[family.sum]\nrequires = ["2 >= 1"]\n', "requires: '2 >= 1' has no size"),
    ("[family.sum]\n", '[family.sum]\nalso = { inc = "incx" }\n', "also inc: incx is not among its parameters"),
    ("[family.sum]\n", '[family.sum]\nalso = { incc = "inc" }\n', "also incc: no function has it"),
    ("[family.sum]\n", '[family.sum]\ntypes = { floats = "f64" }\n', "no function has a parameter of this type"),
    ('inc = "inc"', 'inc = "tried stride"', "or the library has a backend"),
    # the rest of the file
    ("[library]", "[libraries]", "libraries is not understood"),
    ('name = "vendor"', 'name = "vendr"', "'vendr' is not the name of the file"),
    ('backend = "sim"', 'backend = "cude"', "'cude' is none of cuda, hip, sim"),
    ('symbols = ["v_{name}"]', 'symbols = ["v_{nme}"]', "'v_{nme}' needs {name} or {Name}"),
    ('symbols = ["v_{name}"]', 'symbols = "v_{name}"', "is not a list of texts"),
    ('success = "V_OK"', 'success = "V_FINE"', "the header has no V_FINE"),
    ('success = "V_OK"', 'success = "V_OK"\nalso_done = ["V_SLOW"]', "also_done: the header has no V_SLOW"),
    ('scalars = "host"', 'scalars = "hots"', "'hots' is none of pointer mode, host, by value"),
    ('scalars = "host"', 'scalars = "pointer mode"', "[handle] has no set_pointer_mode"),
    ('scalars = "host"', 'stream = "argument"', 'no function has a parameter "stream"'),
    ('create = "v_create"', 'create = "v_make"', "the header has no v_make"),
    ("set_stream =", "set_strem =", "there is no such setting"),
    (', gives = "number" }', " }", "[find.version] has no gives"),
    (', gives = "number" }', ', gives = "numbers" }', "gives is one of text, parts, number, buffer"),
    ('wheels = { vendor-wheel = "vendor/lib/libv*.so" }', 'wheels = ["vendor"]', "wheels is not a table"),
    ("wheels = {", "wheel = {", "wheel is not understood"),
    ("[header]", "[headr]", "headr is not understood"),
    ('title = "Vendor"', 'title = "Ven */ dor"', "title: 'Ven */ dor' is not a name of letters"),
    ('title = "Vendor"', 'title = ""', "title: '' is not a name of letters"),
    ('float = "f32"', 'float = "f64"', "float: 'f64' is not the dtype of C's float"),
    ("[family.sum]\n", '[family.sum]\nhides = "q"\n', "hides: q is not among its parameters"),
    ('constants = ["V_N", "V_T"]', 'constants = "V_("', "'V_(' is not a pattern"),
    ('double = "f64"', 'double = "f65"', "'f65' is not a dtype"),
    ('constants = ["V_N", "V_T"]', 'constants = ["V_N", "V_X"]', "the header has no constant V_X"),
    ('constants = ["V_N", "V_T"]', "constants = 3", "3 is not a text or a list"),
    ('constants = ["V_N", "V_T"]', 'constants = "V_X"', "'V_X' fits none of v_op_t"),
    ('constants = ["V_N", "V_T"]', 'dtypes = { V_N = "f31" }', "'f31' is not a dtype"),
    ('constants = ["V_N", "V_T"]', 'complex = ["V_N"]', "[enums.operation] has no constants, or values besides"),
    (
        '"host out bytes(n)"',
        '"out bytes(n)"',
        "states: the function is named after v_desc_t, so it changes a Desc, whose",
    ),
    (
        '"host in bytes(n)"',
        '"in bytes(n)"',
        "by: the function writes no array and no number, so it changes a Desc, whose",
    ),
    ('bytes(n)"\nn = "size"', 'bytes(n)"\nn = "workspace size"', "n: there is no workspace of that size"),
    ('ldc = "ld"', 'ldc = "nothing"', "ldc"),
    ('class = "Desc"', 'class = "a desc"', "class: 'a desc' is not a name of Python's"),
    ('class = "Desc"', 'class = "int"', "class: 'int' is a name that the stubs need"),
    ('class = "Desc"', 'class = "DevicePtr"', "class: 'DevicePtr' is a name that the stubs need"),
    ('destroy = "v_end_desc"', 'destroy = "v_make_desc"', "destroy: v_make_desc takes no v_desc_t"),
    ('backend = "sim"', 'backend = "sim"\nwide = "6 4"', "wide: '6 4' is not a part of a name"),
    ('backend = "sim"', 'backend = "sim"\nprefixes = ["", "a b"]', "prefixes: 'a b' is not a part of a name"),
    ('backend = "sim"', 'backend = "sim"\nsonames = [""]', "sonames: '' is not the name of a file"),
    (
        "[family.sum]\n",
        '[family.sum]\nsince = { version = "x.y", why = "new" }\n',
        "'x.y' is not a version, such as 6.4",
    ),
    ('functions = "', 'functions = "(', "is not a pattern"),
    ('"host in bytes(n)"', '"in bytes(n); at least v_size(("', "'at least v_size((' is not understood"),
    ('"host in bytes(n)"', '"in bytes(n); may be states"', "'may be states' is not understood"),
    (
        "[family.sum]\n",
        '[family.sum]\nwritten = "oa_nothing"\n',
        "written: none of cublaslt.h, fft.h in csrc/body has oa_nothing",
    ),
    ("[family.sum]\n", '[family.sum]\ncalled_by = "oa_call_{name}"\n', "called_by: csrc/body/rotmg.h has no oa_call_s"),
    ("[family.sum]\n", '[family.sum]\ncalled_by = "oa_call_drotmg"\n', "called_by: that is for libraries that run on"),
    ("[family.sum]\n", '[family.sum]\nolder = { summ = "add" }\n', "older summ: bind has no such name"),
    ("[find]", '[also]\nincc = "inc"\n[find]', "[also] incc: no function has it"),
    ("[find]", 'workspace = "_size"\n[find]', "workspace: no function's name ends with '_size'"),
    ("[find]", 'adds = { _cudnn = ["Graf"] }\n[find]', "adds: _cudnn.py has no Graf"),
    ("[find]", 'adds = { _nothing = ["Graph"] }\n[find]', "adds: _nothing.py has no Graph"),
    ("[find]", 'row_major = { parameter = "q", value = "V_N" }\n[find]', "no function has a parameter q"),
    ("[find]", 'row_major = { parameter = "op", value = "V_R" }\n[find]', "row_major: the header has no V_R"),
    ('create = "v_create"', 'create = "v_version"', "v_version takes int *, and needs to take v_handle_t *"),
    ('set_stream = "v_set', 'set_stream = "v_sum" # "', "and needs to take v_handle_t and one more"),
    ('x = "in vector(n, inc)"', f'x = "in elements({" + ".join(["n"] * 3000)})"', "x: has 3000 operators and brackets"),
    ('v_desc_t = "struct desc *"', 'v_desc_t = "desc desc"', "[raw] v_desc_t: cannot parse"),
    ('op = "operation"\nm = "size"', 'op = "operation"\nm = "integer"', "m: an extent depends on it, so it has to be"),
    ('type = "v_op_t"', 'type = "v_opp_t"', "op: labelled operation (v_opp_t), but its type is v_op_t"),
    ('names = "v_odd"', 'names = "v_(odd"', "'v_(odd' is not a pattern"),
    ('names = "v_odd"', 'name = "v_odd"', "[not_bound] has no names"),
    ('names = "v_odd"', 'names = "v_oddity"', "v_odd is neither bound nor under [[not_bound]]"),
    ("# A vendor.", 'extends = ["nothing"]', "there is no roles/nothing.toml"),
    ("# A vendor.", 'extends = "blas"', "extends: 'blas' is not a list of texts"),
    ('n = "length"', 'n = "length', "Illegal character"),
]
# If a text is missing, the fault names its table. These faults name the place that needs the text instead.
ELSEWHERE = ("has no role", "has no constants", "has no constant V_X", "the header has none", "has no names")
ELSEWHERE += (
    "[also] incc",
    "is neither bound",
    "parameter is not",
    "no function has a parameter of",
    "labelled operation (v_opp_t)",
)
ELSEWHERE += ("'f31'", "but its type is const", "the name of this field", "the role weights")


@pytest.mark.later(but=[fault for *_, fault in WRONG[::8]])
@pytest.mark.parametrize(("right", "wrong", "fault"), WRONG)
def test_a_wrong_roles_file_is_refused_with_its_line(tmp_path: Path, right: str, wrong: str, fault: str) -> None:
    assert right in ROLES
    text = ROLES.replace(right, wrong, 1)
    faults = [fault_line for fault_line in checked(tmp_path, text) if fault in fault_line]
    assert faults
    changed = [a == b for a, b in zip(ROLES.splitlines(), text.splitlines(), strict=False)].index(False) + 1
    if not any(word in fault for word in ELSEWHERE):
        assert f"line {changed}" in faults[0]


def test_the_fields_of_a_struct_need_an_array_beside_them(tmp_path: Path) -> None:
    without = ROLES.replace('weights = "in elements(n * ways)"\n', "").replace("const float *weights; ", "")
    text = without.replace('x = "inout elements(n // ways)"', 'x = "gives real"')
    (fault,) = checked(tmp_path, text)
    assert "v_walk: graph: the fields of a struct are for functions with arrays, and without lists" in fault


WRONG_API = [
    ('"v_sum"', '"v_sum', "vendor.json: Invalid control character"),
    ('"version": "1"', '"version": 1', "vendor.json: version is missing, or no text"),
    ('"enums"', '"enum"', "vendor.json: enums is missing, or no object"),
    ('"V_OK": 0', '"V_OK": "0"', "vendor.json: v_status_t of enums is not an object of integers"),
    ('["n", "int"]', '["n"]', "vendor.json: v_sscale of functions is not an object with the text returns and the list"),
    ('"returns": "v_status_t"', '"gives": "v_status_t"', "vendor.json: v_sscale of functions is not an object"),
]


@pytest.mark.parametrize(("right", "wrong", "fault"), WRONG_API)
def test_a_wrong_api_file_is_refused_with_its_line(tmp_path: Path, right: str, wrong: str, fault: str) -> None:
    checked(tmp_path, ROLES)
    path = tmp_path / "api" / "vendor.json"
    lines = json.dumps(API, indent=1).replace('[\n     "', '["').replace('",\n     "', '", "').replace('"\n    ]', '"]')
    assert right in lines
    path.write_text(lines.replace(right, wrong, 1))
    (line_of_fault,) = workshop.check(tmp_path)
    assert line_of_fault.startswith(fault)
    name = (
        fault.split()[1] if " of " in fault else "v_sum" if "control" in fault else right.partition(":")[0].strip('"')
    )
    line = int(line_of_fault.rpartition("(line ")[2].rstrip(")"))
    assert line == 1 or name in path.read_text().splitlines()[line - 1]


@pytest.mark.parametrize("text", ["[]", "3", "", "\0", '{"functions": []}', "[" * 100000])
def test_what_is_no_api_file_at_all_is_refused(tmp_path: Path, text: str) -> None:
    checked(tmp_path, ROLES)
    (tmp_path / "api" / "vendor.json").write_text(text)
    assert all(fault.startswith("vendor.json: ") for fault in workshop.check(tmp_path))
