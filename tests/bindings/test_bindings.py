"""The generator: roles are complete and right, and the emitted code makes the right calls.

`make lint` checks the committed files, and `make ctest` compiles the emitted C with every warning as an error.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offload_args
from offload_args import _core

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # last, so that the installed offload_args is imported, not its sources

from bindings import __main__ as workshop  # noqa: E402
from bindings import emit, roles  # noqa: E402
from bindings.declarations import entries  # noqa: E402
from bindings.emit.bodies import Body  # noqa: E402
from recording import legal  # noqa: E402

NAMES = roles.names()
BLAS = [name for name in NAMES if name.endswith("blas")]
# The code of large libraries takes seconds to write and compile, so it is tested only in CI.
ONE_OR_ALL = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "cblas" else [pytest.mark.slow]) for name in NAMES]
)
Api = dict[str, Any]


@pytest.fixture(scope="module")
def libraries() -> dict[str, roles.Library]:
    return legal.libraries()


def api_and_labels(name: str, *families: str) -> tuple[Api, Api]:
    """Read the files of a library; `families`: read only these, so that a fault in one of them is found soon."""
    labels = roles.read_roles(name)
    if families:
        labels["family"] = {key: label for key, label in labels["family"].items() if key in families}
    return roles.read_api(name, labels), labels


def copied(folder: Path, name: str) -> Path:
    """Copy the files of one library, and the files that it extends, to a folder."""
    for kind in ("api", "roles"):
        (folder / kind).mkdir()
        for path in (roles.HERE / kind).iterdir():
            if path.stem in (name, "blas"):
                shutil.copy(path, folder / kind)
    return folder


def faults_of(name: str, api: Api, labels: Api) -> str:
    with pytest.raises(roles.RolesError) as caught:
        roles.join(name, api, labels)
    return str(caught.value)


def compile_c(source: Path, out: Path, *options: str) -> None:
    include = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc' / 'include'}", f"-I{out / 'include'}"]
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", *include, *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


# -- labels --


@pytest.mark.later
def test_check_finds_a_report_that_is_not_current(tmp_path: Path) -> None:
    (copied(tmp_path, "cublas") / "report.md").write_text("old\n")
    assert workshop.check(tmp_path) == ["report.md is not current; run python -m bindings report"]


def test_check_says_which_api_file_is_missing(tmp_path: Path) -> None:
    shutil.copytree(roles.HERE / "roles", tmp_path / "roles")
    assert any("cublas.toml: there is no api/cublas.json" in fault for fault in workshop.check(tmp_path))


@pytest.mark.parametrize(
    ("name", "pointer", "fault"),
    [
        ("cublas", "x", "cublasSgemv_v2: x (const float *) has no role"),
        ("cblas", "y", "cblas_cgemv: y (void *) has no role"),
    ],
)
def test_unlabelled_pointer_is_refused(name: str, pointer: str, fault: str) -> None:
    api, labels = api_and_labels(name, "gemv")
    del labels["family"]["gemv"]["parameters"][pointer]
    assert fault in faults_of(name, api, labels)


def test_role_of_an_unknown_function_is_refused() -> None:
    api, labels = api_and_labels("cublas", "gemv")
    labels["family"]["gemv"]["bind"]["{t}gemw"] = ["s", "Does nothing."]
    assert "[family.gemv] sgemw: the header has none of cublasSgemw_v2, cublasSgemw" in faults_of("cublas", api, labels)


def test_role_of_an_unknown_parameter_is_refused() -> None:
    api, labels = api_and_labels("cublas", "gemv")
    labels["family"]["gemv"]["parameters"]["gamma"] = "scalar"
    assert "cublasSgemv_v2: the role gamma names no parameter" in faults_of("cublas", api, labels)


@pytest.mark.later(but="m")
@pytest.mark.parametrize(
    ("parameter", "label", "fault"),
    [
        ("A", "out matrix(m, n, lda)", "A: labelled out, but its type is const float *"),
        ("y", "in vector(n, incy)", "y: labelled in, but its type is float *, not const"),
        ("m", "scalar", "m: labelled scalar, but its type is int"),
        ("alpha", "size", "alpha: labelled size, but its type is const float *"),
        ("trans", "side", "trans: labelled side (cublasSideMode_t), but its type is cublasOperation_t"),
        ("x", "in vector(q, incx)", "x: q is neither a parameter nor a constant"),
        ("x", "in heap(n)", "'heap(n)' is not an extent"),
        ("x", "in vector(n, incx); sometimes", "'sometimes' is not understood"),
        ("x", "pointer", "'pointer' is not a role"),
    ],
)
def test_label_that_contradicts_the_header_is_refused(parameter: str, label: str, fault: str) -> None:
    api, labels = api_and_labels("cublas", "gemv")
    labels["family"]["gemv"]["parameters"][parameter] = label
    assert fault in faults_of("cublas", api, labels)


def test_integer_by_a_name_of_the_headers_gets_its_remedy() -> None:
    api, labels = api_and_labels("cublas", "gemv")
    api["functions"]["cublasSgemv_v2"]["parameters"][2][1] = "long"
    fault = 'm: labelled size, but its type is long; if that is an integer, say which: integers.long = "int64_t"'
    assert fault in faults_of("cublas", api, labels)


def with_arrays_of_pointers(*families: str) -> tuple[Api, Api]:
    """Return cuBLAS with a further function, which takes arrays of pointers."""
    api, labels = api_and_labels("cublas", *families)
    types = {"m": "int", "n": "int", "A": "const float *const[]", "lda": "int", "alpha": "const float *"}
    types |= {"C": "float *const[]", "ldc": "int", "batchCount": "int"}
    api["functions"]["cublasSnew"] = {"returns": "cublasStatus_t", "parameters": list(types.items())}
    labels["family"]["new"] = {
        "bind": {"{t}new": ["s", "Does something."]},
        "parameters": {
            "m": "size",
            "n": "size",
            "A": "in pointers(matrix(m, n, lda), batchCount)",
            "lda": "ld",
            "alpha": "scalar",
            "C": "inout pointers(matrix(m, n, ldc), batchCount)",
            "ldc": "ld",
            "batchCount": "size",
        },
    }
    return api, labels


def test_arrays_of_pointers_have_a_label() -> None:
    library = roles.join("cublas", *with_arrays_of_pointers())
    assert [function.name for function in library.functions if function.family == "new"] == ["snew"]


@pytest.mark.later
@pytest.mark.parametrize(
    ("parameter", "label", "fault"),
    [
        ("A", "in matrix(m, n, lda)", "labelled an array, but its type is const float *const[]"),
        ("A", "out pointers(matrix(m, n, lda), batchCount)", "labelled out, but its type is const float *const[]"),
        ("C", "in pointers(matrix(m, n, ldc), batchCount)", "labelled in, but its type is float *const[], not const"),
        ("alpha", "in pointers(elements(1), batchCount)", "labelled pointers, but its type is const float *"),
        ("A", "in pointers(matrix(m, n, lda))", "'pointers(matrix(m, n, lda))' is not an extent"),
        ("A", "in pointers(matrix(m, n, lda), batches)", "batches is neither a parameter nor a constant"),
        ("C", "inout pointers(matrix(m, n, ldc), batchCount); optional", "'optional' is not understood"),
    ],
)
def test_label_of_an_array_of_pointers_that_contradicts_the_header_is_refused(
    parameter: str, label: str, fault: str
) -> None:
    api, labels = with_arrays_of_pointers("gemv")
    labels["family"]["new"]["parameters"][parameter] = label
    assert f"[family.new] cublasSnew: {parameter}: {fault}" in faults_of("cublas", api, labels)


def test_an_optional_array_of_a_library_of_the_cpu_needs_arrays_of_pointers_beside_it() -> None:
    api, labels = api_and_labels("cblas")
    labels["family"]["copy"]["parameters"]["x"] += "; optional"
    faults = emit.faults(roles.join("cblas", api, labels))
    assert any("cblas_scopy: an array is optional beside arrays of pointers only" in fault for fault in faults)


@pytest.mark.later
@pytest.mark.parametrize(
    ("parameter", "label", "fault"),
    [
        ("A", "in matrix(m ** 2, n, lda)", "A: 'm ** 2' is not an expression that C can be written for"),
        ("A", "in matrix(m, n if trans < OP_N else m, lda)", "A: 'trans < OP_N' is not an expression"),
        ("x", "in vector(n, incx); may be m", "x: may be m, which is not another array"),
    ],
)
def test_check_refuses_what_cannot_be_written_and_names_its_line(
    tmp_path: Path, parameter: str, label: str, fault: str
) -> None:
    path = copied(tmp_path, "cublas") / "roles" / "blas.toml"
    lines = path.read_text().splitlines()
    start = lines.index("[family.gemv.parameters]")
    number = next(at for at in range(start, len(lines)) if lines[at].startswith(f"{parameter} ="))
    lines[number] = f'{parameter} = "{label}"'
    path.write_text("\n".join(lines))
    faults = [fault_line for fault_line in workshop.check(tmp_path) if "[family.gemv] cublasSgemv_v2:" in fault_line]
    assert len(faults) == 1 and fault in faults[0] and faults[0].endswith(f" {number + 1} of blas.toml)"), faults


def shared_and_own(folder: Path, own: str, *functions: str) -> Any:
    """Return a library that extends a file of shared families by its own text."""
    (folder / "roles").mkdir()
    (folder / "roles" / "shared.toml").write_text(
        """
[family.fill.bind]
"{t}fill{form}" = ["sd", "Fills a vector."]
"{t}wipe{form}" = ["sd", "Wipes a vector."]
[family.fill.parameters]
n = "size"
part = "fill"
x = "inout vector(n if part == UPPER else 1, incx); overwrites if part == UPPER"
incx = "inc"
"""
    )
    (folder / "roles" / "mine.toml").write_text(
        f"""
extends = ["shared"]
[library]
name = "mine"
title = "Mine"
[types]
float = "f32"
double = "f64"
[words]
UPPER = "MINE_TOP"
[enums.fill]
type = "int"
constants = ["MINE_TOP"]
{own}
"""
    )
    plain = [["n", "int"], ["part", "int"], ["x", "float *"], ["incx", "int"]]
    strided = [*plain, ["stride_x", "int64_t"], ["batch_count", "int"]]
    listed = {
        function: {"returns": "void", "parameters": strided if "strided" in function else plain}
        for function in functions
    }
    api = {"header": "mine.h", "version": "1", "functions": listed, "enums": {"parts": {"MINE_TOP": 7}}}
    return api, roles.read_roles("mine", folder)


def test_shared_families_bind_what_the_header_has_in_all_its_forms(tmp_path: Path) -> None:
    library = roles.join("mine", *shared_and_own(tmp_path, "", "sfill", "sfill_strided_batched"))
    plain, strided = library.functions
    assert [plain.name, strided.name] == ["sfill", "sfill_strided_batched"]
    common = [("size", "n"), ("enum", "part"), ("inout", "x", "f32"), ("size", "incx")]
    assert emit.record(library, plain) == [emit.Role(*row) for row in common]
    more = [("size", "stride_x"), ("size", "batch_count")]
    assert emit.record(library, strided) == [emit.Role(*row) for row in common + more]
    x = next(array for array in strided.arrays)
    assert [ast.unparse(expression) for expression in x.extent.expressions] == [
        "n if part == MINE_TOP else 1",
        "incx",
        "stride_x",
        "batch_count",
    ]
    assert ast.unparse(x.overwrites) == "part == MINE_TOP" and plain.arrays[0].extent.batch is None


def test_a_library_says_of_a_shared_family_only_what_differs(tmp_path: Path) -> None:
    own = """
[family.fill.parameters]
x = "inout elements(n)"
[family.mine]
bind.swipe = "Its own."
parameters = { n = "size", part = "fill", x = "inout elements(1)", incx = "inc" }
"""
    library = roles.join("mine", *shared_and_own(tmp_path, own, "sfill", "swipe"))
    assert {function.name: ast.unparse(function.arrays[0].extent.arguments[0]) for function in library.functions} == {
        "sfill": "n",
        "swipe": "1",  # the library's own family precedes the shared family
    }


def test_a_batched_array_without_stride_is_refused(tmp_path: Path) -> None:
    api, labels = shared_and_own(tmp_path, "", "sfill_strided_batched")
    parameters = api["functions"]["sfill_strided_batched"]["parameters"]
    parameters[4][0] = "stride_q"
    assert "sfill_strided_batched: x has no stride, or no batch count" in faults_of("mine", api, labels)


def test_a_word_that_is_no_constant_of_an_enum_is_refused() -> None:
    api, labels = api_and_labels("cublas", "gemv")
    labels["words"]["UPPER"] = "CUBLAS_TOP"
    assert "[words] UPPER: none of [enums] has a constant CUBLAS_TOP" in faults_of("cublas", api, labels)


def test_a_number_of_a_dtype_that_c_has_no_type_for_is_refused() -> None:
    api, labels = api_and_labels("cublas", "dot", "axpy")
    labels["types"]["float"] = "f16"
    assert "result: labelled result, and there are no such numbers of f16 yet" in faults_of("cublas", api, labels)
    labels["types"]["float"] = "i16"
    assert "alpha: labelled scalar, and there are no such numbers of i16 yet" in faults_of("cublas", api, labels)


@pytest.mark.later
@pytest.mark.parametrize(
    ("parameter", "label", "fault"),
    [
        ("A", "in matrix(m, n, lda) of lda", "A: lda is not an argument that stands for dtypes"),
        ("A", "in matrix(m, n, lda) of Dtype", "A: Dtype is not an argument that stands for dtypes"),
        ("A", "in matrix(m, n, lda)", "A: labelled an array, but its type is const void *"),
        ("transa", "in vector(n, 1) of Atype", "transa: labelled an array, but its type is cublasOperation_t"),
        ("alpha", "scalar", "alpha: labelled scalar, but its type is const void *"),
        ("alpha", "output of Atype", "alpha: labelled output of Atype, but its type is const void *"),
        ("alpha", "scalar of transa", "alpha: transa is not an argument that stands for dtypes"),
    ],
)
def test_a_dtype_that_no_argument_says_is_refused(parameter: str, label: str, fault: str) -> None:
    api, labels = api_and_labels("cublas", "gemm_ex")
    labels["family"]["gemm_ex"]["parameters"][parameter] = label
    assert f"[family.gemm_ex] cublasGemmEx: {fault}" in faults_of("cublas", api, labels)


def test_a_type_or_a_constant_without_a_dtype_of_the_core_is_refused() -> None:
    api, labels = api_and_labels("cublas", "gemv")
    labels["types"]["float"] = "f31"
    assert "cublas.toml: [types] float: 'f31' is not a dtype" in faults_of("cublas", api, labels)
    api, labels = api_and_labels("cublas", "gemv")
    labels["enums"]["data_type"]["dtypes"]["CUDA_R_4I"] = "i4"
    assert "cublas.toml: [enums.data_type] CUDA_R_4I: 'i4' is not a dtype" in faults_of("cublas", api, labels)


def test_products_and_differences_are_sizes_of_extents() -> None:
    api, labels = api_and_labels("cublas")
    labels["family"]["gemv"]["parameters"]["A"] = "in elements(lda * n - 1)"
    library = roles.join("cublas", api, labels)
    function = next(function for function in library.functions if function.name == "sgemv")
    assert "oa_minus(oa_times(lda, n), 1)" in Body(library, function).text("body")


def test_new_function_of_the_vendor_must_be_bound_or_named() -> None:
    api, labels = api_and_labels("cublas")
    api["functions"]["cublasSnew"] = {"returns": "cublasStatus_t", "parameters": []}
    assert "cublasSnew is neither bound nor under [[not_bound]]" in faults_of("cublas", api, labels)


def test_wide_form_with_another_signature_is_refused() -> None:
    api, labels = api_and_labels("cublas", "gemv")
    api["functions"]["cublasSgemv_v2_64"]["parameters"].pop()
    assert "cublasSgemv_v2_64 differs in more than its sizes" in faults_of("cublas", api, labels)


def test_value_without_the_label_of_a_result_is_refused() -> None:
    api, labels = api_and_labels("cblas", "norm")
    del labels["family"]["norm"]["parameters"]["result"]
    assert "cblas_snrm2: the return value (float) has no role" in faults_of("cblas", api, labels)


@pytest.mark.parametrize("name", BLAS)
def test_levels_1_to_3_are_bound_in_all_four_types(libraries: dict[str, roles.Library], name: str) -> None:
    bound = {function.name for function in libraries[name].functions}
    level1 = "axpy copy swap scal rotg".split()
    level2 = "gemv gbmv trmv tbmv tpmv trsv tbsv tpsv".split()
    level3 = "gemm symm syrk syr2k trmm trsm".split()
    wanted = {letter + stem for letter in "sdcz" for stem in level1 + level2 + level3}
    wanted |= {
        letter + stem for letter in "sd" for stem in "dot nrm2 asum rot rotm rotmg ger symv syr syr2 spr2".split()
    }
    wanted |= {
        letter + stem for letter in "cz" for stem in "dotu dotc geru gerc hemv hbmv hpmv her her2 hpr hpr2".split()
    }
    wanted |= {letter + stem for letter in "cz" for stem in "hemm herk her2k".split()}
    wanted |= set("csscal zdscal scnrm2 dznrm2 scasum dzasum csrot zdrot isamax idamax icamax izamax".split())
    assert wanted <= bound


RANK_K = re.compile(r"[sdcz](syrk|herk|syr2k|her2k|syrkx|herkx|syrk3m|herk3m)(_ex|_batched|_strided_batched)?")


def test_triangles_are_overwritten_by_rank_k_updates_alone_and_copies_always(
    libraries: dict[str, roles.Library],
) -> None:
    for library in libraries.values():
        for function in library.functions:
            for array in function.of("array"):
                assert array.extent is not None
                if array.extent.kind in ("triangle", "band", "packed"):
                    updated = array.extent.kind == "triangle" and array.name == "C" and RANK_K.fullmatch(function.name)
                    assert array.direction != "out", (function.name, array.name)
                    assert bool(array.overwrites) == bool(updated), (function.name, array.name)
        copied = [function.of("array") for function in library.functions if function.name == "dcopy"]
        assert [array.direction for arrays in copied for array in arrays] == (
            ["in", "out"] if library.name in BLAS else []
        )


# -- C --


Emitted = Callable[[str], Path]


@pytest.fixture(scope="module")
def emitted(libraries: dict[str, roles.Library], tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    """Return the folder with the generated files of one library."""

    @cache
    def emitted_of(name: str) -> Path:
        out = tmp_path_factory.mktemp(name)
        emit.emit([libraries[name]], out)
        return out

    return emitted_of


@ONE_OR_ALL
def test_headers_can_be_used_alone(emitted: Emitted, tmp_path: Path, name: str) -> None:
    source = tmp_path / "user.c"
    source.write_text(f'#include "offload_args_{name}.h"\nint main(void) {{ return oa_version() == 0; }}\n')
    compile_c(source, emitted(name), "-fsyntax-only")


def abi(c_type: str, blasint: str = "int") -> str:
    """Return the way in which a C type is passed; all pointers are alike, and so are enums and int."""
    if c_type.endswith(
        ("*", "[]", "Handle_t", "Stream_t", "Event_t", "Descriptor_t", "ParamPack_t", "Plan_t", "Graph_t")
    ):
        return "pointer"
    if c_type.endswith(("MatrixLayout_t", "Desc_t", "Preference_t", "allback_t", "IRSParams_t", "IRSInfos_t")):
        return "pointer"
    if c_type == "ncclUniqueId":
        return "oa_bytes_128"
    if c_type in (
        "cufftHandle",  # an int, which a caller passes in a register
        "hipfftHandle",
        "ncclComm_t",
        "rocblas_handle",
        "curandGenerator_t",
        "cusolverDnParams_t",
        "syevjInfo_t",
        "gesvdjInfo_t",
    ):
        return "pointer"
    enums = (
        "cublas",
        "cudnn",
        "cudss",
        "cufft",
        "curand",
        "cusolver",
        "cusparse",
        "cudaDataType",
        "cudaEmulation",
        "hipDataType",
        "hipfft",
        "hipsparse",
        "libraryProperty",
        "rocblas",
        "nccl",
    )
    if c_type.startswith((*enums, "enum ")):
        return "int64_t" if c_type == "rocblas_stride" else "int"
    if c_type == "blasint":
        return blasint
    if c_type in ("long long", "unsigned long long", "uint64_t", "size_t"):
        return "int64_t"
    narrow = dict.fromkeys(("unsigned", "unsigned int", "int32_t", "uint32_t"), "int") | {"_Bool": "unsigned char"}
    narrow |= dict.fromkeys(("char", "signed char"), "int")  # these are widened in a call
    return (narrow | dict.fromkeys(("bfloat16", "hfloat16"), "uint16_t")).get(c_type, c_type)


@ONE_OR_ALL
def test_vendor_functions_are_called_with_the_headers_types(
    emitted: Emitted, libraries: dict[str, roles.Library], name: str
) -> None:
    paths = [emitted(name) / "libraries" / f"{stem}.c" for stem in (name, f"{name}_bodies_1")]
    table, text = (re.sub(r"\s+", " ", path.read_text()) for path in paths)
    api = api_and_labels(name)[0]["functions"]
    for function in libraries[name].functions:
        row = table.split(f'{{.function = "{name}.{function.name}", ')[1].split(".function =")[0]
        if libraries[name].backend:
            caller = re.findall(r"\.run = (\w+),", row)[0]
            called = [(symbol, "int") for symbol in (function.wide_symbol, function.symbol) if symbol]
        else:  # one call with 64-bit integers and one with 32-bit integers
            caller = re.findall(r"\.call = (\w+),", row)[0]
            both = libraries[name].probe and function.of("size", "ld", "inc")
            called = [(function.symbol, c_type) for c_type in (["int64_t", "int"] if both else ["int"])]
        inner = f"{caller}_in" if function.lists and libraries[name].backend else caller  # inner function for groups
        inner = f"{inner}_with_objects" if f"static int {inner}_with_objects(" in text else inner
        if function.called_by:
            by_hand = re.sub(r"\s+", " ", (roles.HERE.parent / "csrc" / "body" / "rotmg.inc").read_text())
            body = by_hand.replace("REAL", {"s": "float", "d": "double"}[function.name[0]])
        else:
            body = re.split(r"\*/ (?:static )?int \w+\(", text.split(f"int {inner}(")[1])[0].split("} static int ")[0]
        if function.of("ended"):  # the core itself destroys its objects
            assert f"return oa_helper_{'abort' if function.aborts else 'destroy'}(routine, values, device);" in body
            continue
        if function.written.startswith("oa_fft_"):
            by_hand = re.sub(r"\s+", " ", (roles.HERE.parent / "csrc" / "body" / "fft.c").read_text())
            directed = len(api[function.symbol]["parameters"]) == 4
            body = by_hand.split(" static int run(")[1].split("else if" if directed else " if (!answer && routine")[1]
            body = body.split(";")[0]
        elif function.written:
            by_hand = re.sub(r"\s+", " ", (roles.HERE.parent / "csrc" / "body" / "cublaslt.c").read_text())
            body = by_hand.split(f" {function.written.replace('oa_lt_', 'call_')}(")[1]
            body = re.sub(r"typedef (int) \w+\(([^)]*)\)", r"((\1 (*)(\2))symbol)", body, count=1).split("return ((")[0]
        called = [(function.query, "int"), *called] if function.query else called
        casts = re.findall(r"\(\(([\w *]+) \(\*\)\(([^)]*)\)\)(?:symbol|query)\)", body)
        assert len(casts) == len(called), function.name
        for (returns, types), (symbol, blasint) in zip(casts, called, strict=True):
            declared = [abi(parameter[1], blasint) for parameter in api[symbol]["parameters"]]
            assert [abi(type_.strip()) for type_ in types.split(",")] == (declared or ["void"])
            assert abi(returns.strip()) == abi(api[symbol]["returns"])


@ONE_OR_ALL
def test_rows_name_the_symbols_and_dtypes_of_their_functions(
    emitted: Emitted, libraries: dict[str, roles.Library], name: str
) -> None:
    text = (emitted(name) / "libraries" / f"{name}.c").read_text()
    symbols = re.findall(r'"(\w+)"', text.split("symbols[] = {")[1].split("};")[0])
    codes = {entry[1]: number for number, entry in enumerate(entries("dtypes"))}
    rows = {row.split('"')[0]: row for row in text.split(f'.function = "{name}.')[1:]}
    assert list(rows) == sorted(function.name for function in libraries[name].functions)
    for function in libraries[name].functions:
        row = rows[function.name]
        narrow, wide, query = map(int, re.findall(r"\.symbols = \{(-?\d+), (-?\d+), (-?\d+)\}", row)[0])
        assert (symbols[query] if query >= 0 else "") == function.query
        assert symbols[narrow] == function.symbol
        assert (symbols[wide] if wide >= 0 else None) == function.wide_symbol
        dtypes = re.findall(r'\.dtypes = "([^"]*)"', row)[0].split("\\")[1:]
        assert [int(dtype, 8) for dtype in dtypes] == [
            codes[parameter.dtype or "any"] for parameter in function.parameters
        ]


@ONE_OR_ALL
def test_a_family_has_one_body(emitted: Emitted, libraries: dict[str, roles.Library], name: str) -> None:
    """Types, conjugation and the place of scalars are data. Only a function with other checks has a separate body."""
    text, library = (emitted(name) / "libraries" / f"{name}_bodies_1.c").read_text(), libraries[name]
    bodies = len(re.findall(rf"^int {name}_run_\w+\(", text, re.MULTILINE))
    families = {(function.family, function.form) for function in library.functions if not function.is_helper}
    others = {function.family for function in library.functions if function.is_helper}  # several of these may be alike
    assert 0 < bodies <= 1.1 * len(families) + len(others) + 5  # some bodies differ for real and complex types


@pytest.mark.slow
@pytest.mark.promise("T30", "T32")
def test_shims_declare_and_pass_on_what_they_should(emitted: Emitted, tmp_path: Path) -> None:
    """The core and the vendor library are the test's own."""
    program = tmp_path / "shims_alone"
    sources = [emitted("cublas") / "libraries" / f"{stem}.c" for stem in ("cublas", "cublas_api", "cublas_bodies_1")]
    sources += [ROOT / "csrc" / file for file in ("body/body.c", "body/groups.c", "base/number.c")]
    compile_c(
        Path(__file__).with_name("shims_alone.c"), emitted("cublas"), *map(str, sources), "-lm", "-o", str(program)
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- Python --


def functions_in(text: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


@ONE_OR_ALL
def test_every_bound_function_has_a_docstring_and_a_signature(
    emitted: Emitted, libraries: dict[str, roles.Library], name: str
) -> None:
    library = libraries[name]
    module = importlib.import_module(f"offload_args.{name}")
    stubs = functions_in((emitted(name) / f"{name}.pyi").read_text())
    bound = {function.name for function in library.functions}
    no_functions = {*library.constants, *(object_kind.name for object_kind in library.object_kinds), "raw"}
    no_functions |= {name for names in library.adds.values() for name in names}
    assert bound == set(stubs) == set(dir(module)) & bound == set(module.__all__) - no_functions
    for function in library.functions:
        routine = getattr(module, function.name)
        signature = inspect.signature(routine)
        positional = [
            parameter.name
            for parameter in function.parameters
            if parameter.in_python and parameter is not function.result
        ]
        takes_handle = any(argument.role == "handle" for argument in function.arguments)
        keywords = [*(["result"] if library.takes_result(function) else []), *(["handle"] if takes_handle else [])]
        assert list(signature.parameters) == [*positional, *keywords]
        assert [
            keyword for keyword in keywords if signature.parameters[keyword].kind is not inspect.Parameter.KEYWORD_ONLY
        ] == []
        assert [arg.arg for arg in stubs[function.name].args.args] == positional
        types = {arg.arg: ast.unparse(arg.annotation) for arg in stubs[function.name].args.args if arg.annotation}
        if not library.has_device_form(function):
            assert not [scalar.name for scalar in function.of("scalar") if "DevicePtr" in types.get(scalar.name, "")]
        text = inspect.getdoc(routine) or ""
        assert re.match(r"[A-Z][a-z]+s ", text) and f"Source: {library.source}, {function.symbol}." in text
        for parameter in function.parameters:
            assert not parameter.in_python or re.search(rf"\b{parameter.name}\b", text), (function.name, parameter.name)


def test_roles_def_has_a_line_for_each_role_of_a_parameter_and_no_other(libraries: dict[str, roles.Library]) -> None:
    listed = {text: name for name, text, _ in entries("roles")}
    used = {row.role for library in libraries.values() for f in library.functions for row in emit.record(library, f)}
    assert set(listed) == used
    for text, name in listed.items():
        assert name == text.replace("?", "_or_none").replace("*", "_list").upper()


@ONE_OR_ALL
def test_a_record_in_c_is_the_generators(libraries: dict[str, roles.Library], name: str) -> None:
    for function in libraries[name].functions:
        rows_of_core = _core.record(name, function.name)
        rows = [(*row[:2], row.dtype or "any", *row[3:]) for row in emit.record(libraries[name], function)]
        assert list(rows_of_core) == rows, function.name


@ONE_OR_ALL
def test_records_name_the_c_parameters_in_order(
    emitted: Emitted, libraries: dict[str, roles.Library], name: str
) -> None:
    header = re.sub(r"\s+", " ", (emitted(name) / "include" / f"offload_args_{name}.h").read_text())
    for function in libraries[name].functions:
        declared = header.split(f"int oa_{name}_{function.name}(")[1].split(");")[0]
        names = [row.name for row in emit.record(libraries[name], function)]
        assert [parameter.split()[-1].lstrip("*") for parameter in declared.split(",") if declared != "void"] == names


def test_no_line_of_a_vendors_header_is_in_the_api_files() -> None:
    for name in NAMES:
        api = api_and_labels(name)[0]
        assert set(api) - {"older"} == {"header", "version", "functions", "enums"}
        assert all(
            set(function) - {"deprecated"} == {"returns", "parameters"} for function in api["functions"].values()
        )


def test_the_command_line_reports_faults_with_status_1(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(workshop, "check", list)
    monkeypatch.setattr(workshop.roles, "load", lambda: [*legal.libraries().values()])  # they are already read
    assert workshop.main(["--check"]) == 0
    monkeypatch.setattr(workshop, "check", lambda: ["cublas.toml: x has no role"])
    assert workshop.main(["--check"]) == 1
    assert "cublas.toml: x has no role" in capsys.readouterr().out


def test_the_stub_has_the_fields_of_every_record_of_the_extension() -> None:
    stub = ast.parse(Path(offload_args.__file__).with_name("_core.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    records = {name: var for name, var in vars(_core).items() if isinstance(var, type) and issubclass(var, tuple)}
    assert len(records) >= 5
    for name, record in records.items():
        fields = [line.target.id for line in classes[name].body if isinstance(line, ast.AnnAssign)]
        assert fields == list(record._fields), name  # type: ignore[attr-defined]


def test_the_extension_and_its_stub_have_every_number_of_the_core() -> None:
    stub = Path(offload_args.__file__).with_name("_core.pyi").read_text()
    numbers = {name: value for name, value in vars(_core).items() if name.startswith("OA_")}
    assert sorted(re.findall(r"^(OA_\w+): Final\[int\]$", stub, re.MULTILINE)) == sorted(numbers)
    assert [numbers[f"OA_{name}"] for name, *_ in entries("dtypes")] == list(range(len(_core.DTYPES)))
    assert [numbers[name] for name in _core.STATUSES] == list(range(len(_core.STATUSES)))
    kinds = [numbers[f"OA_TRACE_{kind.upper()}"] for kind in _core.TRACE_KINDS[1:]]
    assert kinds == list(range(1, len(_core.TRACE_KINDS)))
    known_to_numpy = [(np.dtype(name), nbytes, kind) for name, _, nbytes, kind in _core.DTYPES if kind]
    assert len(known_to_numpy) == len(_core.DTYPES) - 4  # all but "any", bfloat16 and two dtypes of 8 bits
    assert all((dtype.itemsize, dtype.kind) == (nbytes, kind) for dtype, nbytes, kind in known_to_numpy)
