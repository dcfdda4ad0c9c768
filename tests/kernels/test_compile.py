"""Kernels from source, and the partitions of kernel.h, with one source for every device."""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.devices import here, open_or_skip
from helpers.processes import lacking
from offload_args import Device, In, InOut, Kernel, Module, Out, cache, errors, offload, offload_args
from offload_args.kernels import dependencies, rtc
from offload_args.kernels.compilers import target_of

ONE_SOURCE = """\
#include <offload_args/kernel.h>

OA_KERNEL(vadd, oa::In<float> a, oa::In<float> b, oa::Out<float> c, int n) {
  for (auto element : c.mine(oa::Linear1D(n), here)) *element = a[element.index()] + b[element.index()];
}
OA_KERNEL(relu, oa::InOut<float> x, int n) {
  for (auto element : x.mine(oa::GridStride1D(n), here))
    if (*element < 0) *element = 0;
}
"""
VADD = (In[np.float32], In[np.float32], Out[np.float32], np.int32)
RELU = (InOut[np.float32], np.int32)
N = 1037
LIBRARIES = ["libmend.a", "library.o"]


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("OFFLOAD_ARGS_CACHE", str(folder))
    return folder


@pytest.fixture(params=here("host", "cuda:0", "hip:0", "hip:1"))
def compiling(request: pytest.FixtureRequest) -> str:
    """A device for each compiler of this machine; simulated devices use the host's compiler."""
    return open_or_skip(request.param)


def test_one_source_runs_on_every_device(device: str) -> None:
    a, b, c = ramp(N), ramp(N)[::-1].copy(), np.zeros(N, np.float32)
    vadd = Kernel.compile(ONE_SOURCE, "vadd", VADD, device=device)
    relu = Kernel.compile(ONE_SOURCE, "relu", [InOut[np.float32], np.int32], device=device)
    with offload_args(a, b, c, device=device) as (da, db, dc):
        vadd[-(-N // 128), 128](da, db, dc, N)
    np.testing.assert_array_equal(c, a + b)
    c -= 1000
    offload(relu, c, N, grid=64 if device.startswith("cuda") else 3, block=32, device=device)
    np.testing.assert_array_equal(c, np.maximum(a + b - 1000, 0))


@pytest.mark.later
def test_a_kernel_compiled_for_one_device_compiles_for_others_when_used_there(cached: Path) -> None:
    relu = Kernel.compile(ONE_SOURCE, "relu", [InOut[np.float32], np.int32], device="host")
    for name in ("host", "sim:0"):
        x = ramp(N) - 500
        offload(relu, x, N, device=name)
        np.testing.assert_array_equal(x, np.maximum(ramp(N) - 500, 0))


def test_a_source_that_does_not_compile_gives_the_log(cached: Path, compiling: str) -> None:
    with pytest.raises(errors.ModuleError, match=r"(?s)refuses vadd.*error.*unheard_of"):
        Kernel.compile(ONE_SOURCE.replace("a[element", "unheard_of[element"), "vadd", VADD, device=compiling)
    with pytest.raises(errors.ModuleError, match="refuses vadd"):
        Kernel.compile(ONE_SOURCE, "vadd", VADD, options=["--no-such-option"], device=compiling)


@pytest.mark.later
def test_options_reach_the_compiler(cached: Path, compiling: str) -> None:
    source = ONE_SOURCE.replace("+ b[", "+ FACTOR * b[")
    vadd = Kernel.compile(source, "vadd", VADD, options=["-DFACTOR=1"], device=compiling)
    a, b, c = ramp(N), ramp(N), np.zeros(N, np.float32)
    offload(vadd, a, b, c, N, device=compiling)
    np.testing.assert_array_equal(c, a + b)


# This library finds the other library only if it is already loaded.
NVRTC = """\
#include <dlfcn.h>
int nvrtcVersion(int *major, int *minor) {
  *major = 99;
  *minor = dlopen("libnvrtc-builtins.so.99.7", RTLD_NOW) ? 7 : 0;
  return 0;
}
void nvrtcCreateProgram(void) {}
void nvrtcCompileProgram(void) {}
void nvrtcDestroyProgram(void) {}
void nvrtcGetProgramLog(void) {}
void nvrtcGetCUBIN(void) {}
void nvrtcGetCUBINSize(void) {}
"""


def test_an_nvrtc_of_ones_own_finds_the_library_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builtins = "libnvrtc-builtins.so.99.7"
    for name, source in ((builtins, ""), ("libnvrtc.so.99", NVRTC)):
        options = ["-shared", "-fPIC", f"-Wl,-soname,{name}", "-x", "c", "-", "-o", str(tmp_path / name)]
        subprocess.run(["cc", *options], input=source, text=True, check=True)
    monkeypatch.setenv("OFFLOAD_ARGS_NVRTC", str(tmp_path / "libnvrtc.so.99"))
    library = rtc._load_nvrtc.__wrapped__()
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    assert (major.value, minor.value) == (99, 7)


TEXT = ((ONE_SOURCE, "vadd", VADD),)
WRONG: dict[str, tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = {
    "bytes": (errors.ArgumentTypeError, "source needs a string", (b"", "vadd", VADD), {}),
    "no name": (errors.ArgumentTypeError, "name needs a string", (ONE_SOURCE, None, VADD), {}),
    "half a character": (errors.ArgumentError, r"source has '\\ud800' at index 2", ("//\ud800", "vadd", VADD), {}),
    "half a name": (errors.ArgumentError, r"name has '\\udcff' at index 0", (ONE_SOURCE, "\udcff", VADD), {}),
    "an option of no text": (errors.ArgumentTypeError, r"options\[1\] needs a string", *TEXT, {"options": ["-O1", 5]}),
    "no options": (errors.ArgumentTypeError, "options needs a list of strings, got None", *TEXT, {"options": None}),
    "a zero in the source": (errors.ArgumentError, r"source has '\\x00' at index 1", ("a\0", "vadd", VADD), {}),
    "a zero in the name": (errors.ArgumentError, r"name has '\\x00'", (ONE_SOURCE, "vadd\0", VADD), {}),
    "a zero in an option": (errors.ArgumentError, r"options\[0\] has '\\x00'", *TEXT, {"options": ["\0"]}),
    "another kernel": (errors.ModuleError, "no kernel 'vsub'", (ONE_SOURCE, "vsub", VADD), {}),
    "options as text": (errors.ArgumentTypeError, "list of strings", (ONE_SOURCE, "vadd", VADD), {"options": "-O2"}),
    "no signature": (errors.SignatureError, "needs a list with a type", (ONE_SOURCE, "vadd", None), {}),
    "one fewer": (errors.SignatureError, "has 3 parameters", (ONE_SOURCE, "vadd", VADD[:3]), {}),
    "another size": (errors.SignatureError, "argument 4", (ONE_SOURCE, "vadd", (*VADD[:3], np.int64)), {}),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_of_compile_are_refused(device: str, case: str) -> None:
    error, words, arguments, options = WRONG[case]
    with pytest.raises(error, match=words):
        Kernel.compile(*arguments, device=device, **options)


@pytest.mark.parametrize(
    ("command", "error", "words"),
    [
        ("g++ 'of", errors.LibraryError, "CXX=g\\+\\+ 'of can't be read: No closing quotation"),
        ("/no/such/c++", errors.LibraryError, "/no/such/c\\+\\+ can't be run: No such file or directory; see CXX"),
        ("true", errors.ModuleError, "(?s)true refuses vadd:.it wrote no output"),
        ("false", errors.ModuleError, "(?s)false refuses vadd:.it ended with status 1"),
    ],
)
def test_a_compiler_that_is_none_is_named(
    cached: Path, monkeypatch: pytest.MonkeyPatch, command: str, error: type[Exception], words: str
) -> None:
    monkeypatch.setenv("CXX", command)
    with pytest.raises(error, match=words):
        Kernel.compile(ONE_SOURCE, "vadd", VADD, device="host")


def test_an_nvrtc_that_is_another_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    other = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so" in line)
    monkeypatch.setenv("OFFLOAD_ARGS_NVRTC", other)
    with pytest.raises(errors.LibraryError, match=r"libc.so.* has no nvrtcVersion: it is another library"):
        rtc._load_nvrtc.__wrapped__()


def test_a_missing_nvrtc_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFLOAD_ARGS_NVRTC", str(tmp_path / "of\ntwo lines.so"))
    with pytest.raises(
        errors.LibraryError, match=r"^Kernel\.compile: NVRTC was not found; .* \(/\S+/of two lines\.so: .+\)$"
    ):
        rtc._load_nvrtc.__wrapped__()


# -- targets, saved modules, logs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sm_90", "gfx90a"])
def test_a_kernel_is_compiled_for_a_gpu_that_is_not_here_and_saved(cached: Path, tmp_path: Path, target: str) -> None:
    path = tmp_path / "vadd"
    try:
        vadd = Kernel.compile(ONE_SOURCE, "vadd", VADD, target=target)
    except errors.LibraryError:
        lacking("nvrtc" if target == "sm_90" else "hiprtc")
    vadd.save(path)
    module = Module.load(path)
    assert set(module.kernels) == {"vadd", "relu"}
    assert module.target == target or module.format == "shared object"  # the double of NVRTC makes shared objects
    assert module.kernel("vadd", *VADD).signature == vadd.signature
    with pytest.raises(errors.SignatureError, match="argument 4"):
        module.kernel("vadd", *VADD[:3], np.int64)
    a, c = ramp(N), np.zeros(N, np.float32)
    offload(vadd, a, a, c, N, device="host")  # the kernel is compiled for other devices when it is used there
    np.testing.assert_array_equal(c, 2 * a)


def test_a_module_that_is_saved_for_this_device_runs_here(device: str, tmp_path: Path) -> None:
    processor = target_of(Device(device)).processor
    target = {"target": processor} if processor else {"device": device}
    Kernel.compile(ONE_SOURCE, "relu", RELU, **target).save(tmp_path / "relu")
    module = Module.load(tmp_path / "relu")
    if module.format == "shared object" and device.startswith("cuda"):
        pytest.skip("device unavailable: a double, which has no modules of its own")
    x = ramp(N) - 500
    offload(module.kernel("relu", *RELU), x, N, device=device)
    np.testing.assert_array_equal(x, np.maximum(ramp(N) - 500, 0))


def test_a_target_is_a_processor_of_gpus_and_no_device() -> None:
    for wrong in ("cuda:0", "sm90", "gfx", ""):
        with pytest.raises(errors.ArgumentError, match=rf'target needs .*"sm_90".*"gfx90a".*, got {wrong!r}'):
            Kernel.compile(ONE_SOURCE, "vadd", VADD, target=wrong)
    with pytest.raises(errors.ArgumentError, match="needs a device or a target, got both"):
        Kernel.compile(ONE_SOURCE, "vadd", VADD, target="sm_90", device="host")
    with pytest.raises(errors.ArgumentTypeError, match=r"target needs a string, got 90"):
        Kernel.compile(ONE_SOURCE, "vadd", VADD, target=90)  # type: ignore[arg-type]


@pytest.mark.later
def test_warnings_of_the_compiler_are_kept_with_the_kernel(cached: Path, compiling: str) -> None:
    source = ONE_SOURCE + "\n#warning mind the gap\n"
    for _ in range(2):  # first compiled, then from the cache
        assert "mind the gap" in Kernel.compile(source, "vadd", VADD, device=compiling).log
    assert Kernel.compile(ONE_SOURCE, "vadd", VADD, device=compiling).log == ""


# -- the cache ---------------------------------------------------------------------------------------------------------


def no_compiler(*_: object) -> None:
    raise AssertionError("it is compiled again")


@pytest.mark.later
def test_a_source_is_compiled_once(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Kernel.compile(ONE_SOURCE, "vadd", VADD, device="host")
    assert stat.S_IMODE(cached.stat().st_mode) == 0o700
    before = {file: file.stat().st_mtime_ns for file in cached.iterdir()}
    assert {stat.S_IMODE(file.stat().st_mode) for file in before} == {0o600}
    monkeypatch.setattr("offload_args.kernels.compilers._by_host", no_compiler)
    Kernel.compile(ONE_SOURCE, "vadd", VADD, device="host")
    assert {file: file.stat().st_mtime_ns for file in cached.iterdir()} == before


@pytest.mark.later
def test_another_source_or_option_is_another_file(cached: Path) -> None:
    Kernel.compile(ONE_SOURCE, "vadd", VADD, device="host")
    count = len(list(cached.iterdir()))
    Kernel.compile(ONE_SOURCE + "\n", "vadd", VADD, device="host")
    Kernel.compile(ONE_SOURCE, "vadd", VADD, options=["-O1"], device="host")
    assert len(list(cached.iterdir())) == 3 * count


FILL = """\
#include <offload_args/kernel.h>
#include "number.h"
OA_KERNEL(number, oa::Out<int> x, int n) {
  for (auto element : x.mine(oa::Linear1D(n), here)) *element = NUMBER;
}
"""


def number(device: str, *options: str) -> int:
    """Return the number of the header with which the kernel was compiled."""
    x = np.zeros(3, np.int32)
    offload(Kernel.compile(FILL, "number", [Out[np.int32], np.int32], options=options, device=device), x, 3,
            device=device)  # fmt: skip
    return int(x[2])


@pytest.mark.later
@pytest.mark.promise("T67")
def test_a_header_that_changes_is_compiled_again(cached: Path, compiling: str, tmp_path: Path) -> None:
    header, inner = tmp_path / "number.h", tmp_path / "inner.h"
    header.write_text('#include "inner.h"\n')
    for value in (5, 6, 5):
        inner.write_text(f"#define NUMBER {value}\n")
        assert number(compiling, f"-I{tmp_path}") == value
    header.write_text("#define NUMBER 7\n")
    assert number(compiling, "-I", str(tmp_path)) == 7
    assert number(compiling, f"-I{tmp_path}") == 7


@pytest.mark.later
@pytest.mark.promise("T67")
def test_a_header_that_comes_before_another_is_compiled_again(
    cached: Path, compiling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("working", "first", "second")]
    for folder in folders:
        folder.mkdir()
    monkeypatch.chdir(folders[0])
    options = [f"-I{folder}" for folder in folders[1:]]
    for value in (2, 1, 0) if target_of(Device(compiling)).backend == "host" else (2, 1):
        (folders[value] / "number.h").write_text(f"#define NUMBER {value}\n")
        assert number(compiling, *options) == value
    (folders[0] / "number.h").unlink(missing_ok=True)
    assert number(compiling, *options) == 1


@pytest.mark.later
@pytest.mark.promise("T67")
@pytest.mark.parametrize("asked", ['"maybe.h"', pytest.param("<maybe.h>", marks=pytest.mark.slow), "MAYBE"])
def test_a_header_that_is_asked_for_counts(cached: Path, compiling: str, tmp_path: Path, asked: str) -> None:
    """No compiler lists the headers of __has_include."""
    (tmp_path / "number.h").write_text(
        f'#define MAYBE "maybe.h"\n#if __has_include({asked})\n#define NUMBER 2\n#else\n#define NUMBER 1\n#endif\n'
    )
    maybe = tmp_path / "maybe.h"
    assert number(compiling, f"-I{tmp_path}") == 1
    maybe.write_text("")
    assert number(compiling, f"-I{tmp_path}") == 2
    maybe.unlink()
    assert number(compiling, f"-I{tmp_path}") == 1


@pytest.mark.later
@pytest.mark.promise("T67")
@pytest.mark.parametrize("place", ["source", pytest.param("header", marks=pytest.mark.slow)])
def test_a_file_that_the_assembler_reads_is_compiled_again(cached: Path, tmp_path: Path, place: str) -> None:
    """No compiler lists the files of .incbin."""
    path = tmp_path / "number.bin"
    lines = f'__asm__(".data\\nmend_number: .incbin \\"{path}\\"\\n.text");\nextern "C" int mend_number '
    lines += '__attribute__((visibility("hidden")));\n#define NUMBER mend_number\n'
    (tmp_path / "number.h").write_text(lines if place == "header" else "")
    source = FILL if place == "header" else FILL.replace('#include "number.h"\n', lines)
    for value in (3, 4):
        path.write_bytes(np.int32(value).tobytes())
        x = np.zeros(3, np.int32)
        kernel = Kernel.compile(source, "number", [Out[np.int32], np.int32], options=[f"-I{tmp_path}"], device="host")
        offload(kernel, x, 3, device="host")
        assert x[2] == value


@pytest.mark.promise("T67")
@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("__TIME__", "header"),
        *(pytest.param(f"__{word}__", "header", marks=pytest.mark.slow) for word in ("DATE", "TIMESTAMP")),
        pytest.param("__TIME__", "option", marks=pytest.mark.slow),
    ],
)
def test_a_source_that_asks_the_time_is_compiled_again(
    cached: Path, compiling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, place: str
) -> None:
    (tmp_path / "number.h").write_text(f"#define NUMBER sizeof({word if place == 'header' else 'WHEN'})\n")
    options = [f"-I{tmp_path}", *([f"-DWHEN={word}"] if place == "option" else [])]
    sizes = {"__TIME__": 9, "__DATE__": 12, "__TIMESTAMP__": 25}
    if word == "__TIMESTAMP__" and target_of(Device(compiling)).backend == "cuda":
        with pytest.raises(errors.ModuleError, match="NVRTC .* refuses number"):  # NVRTC lacks the macro
            number(compiling, *options)
        return
    assert number(compiling, *options) == sizes[word]
    maker = "_by_host" if target_of(Device(compiling)).backend == "host" else "_by_vendor"
    monkeypatch.setattr(f"offload_args.kernels.compilers.{maker}", no_compiler)
    with pytest.raises(AssertionError, match="compiled again"):
        number(compiling, *options)


@pytest.mark.later
@pytest.mark.promise("T67")
def test_a_further_source_among_the_options_is_compiled_again(cached: Path, tmp_path: Path) -> None:
    """The compiler lists the headers of only one source."""
    (tmp_path / "number.h").write_text('extern "C" int further();\n#define NUMBER further()\n')
    (tmp_path / "further.cpp").write_text('#include "deeper.h"\nextern "C" int further() { return DEEPER; }\n')
    for value in (3, 4):
        (tmp_path / "deeper.h").write_text(f"#define DEEPER {value}\n")
        assert number("host", f"-I{tmp_path}", str(tmp_path / "further.cpp")) == value


@pytest.mark.later
@pytest.mark.parametrize(
    "options",
    [["-L{0}", "-lmend"], *(pytest.param([f"{{0}}/{library}"], marks=pytest.mark.slow) for library in LIBRARIES)],
)
def test_a_library_among_the_options_is_linked(cached: Path, tmp_path: Path, options: list[str]) -> None:
    """T67.

    The linker searches the library for missing symbols, in any order of the options, and the library is an input.
    """
    (tmp_path / "number.h").write_text('extern "C" int library_number();\n#define NUMBER library_number()\n')
    for value in (5, 6):
        (tmp_path / "library.c").write_text(f"int library_number(void) {{ return {value}; }}\n")
        for command in ("cc -fPIC -c library.c", "ar rcs libmend.a library.o"):
            subprocess.run(command.split(), cwd=tmp_path, check=True)
        assert number("host", f"-I{tmp_path}", *(option.format(tmp_path) for option in options)) == value


@pytest.mark.parametrize("option", ["-E", "-M", "-MM", "-MDx.d", "-c", "-S", "-o", "-ox", "-fsyntax-only", "--help"])
def test_an_option_that_makes_no_module_is_refused(device: str, option: str) -> None:
    """T67. The error names the option's place, and a remedy."""
    with pytest.raises(errors.ArgumentError, match=rf"Kernel\.compile: options\[1\] is '{option}', .*; leave it out"):
        Kernel.compile(ONE_SOURCE, "vadd", VADD, options=["-O1", option, "x"], device=device)


@pytest.mark.later
@pytest.mark.promise("T67")
def test_a_header_that_is_found_by_the_environment_counts(
    cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (1, 2):
        folder = tmp_path / str(value)
        folder.mkdir()
        (folder / "number.h").write_text(f"#define NUMBER {value}\n")
        monkeypatch.setenv("CPATH", str(folder))
        assert number("host") == value


@pytest.mark.later
@pytest.mark.promise("T67")
def test_another_compiler_or_cpu_compiles_again(cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    (tmp_path / "number.h").write_text("")
    for value in (1, 2):
        compiler.write_text(f'#!/bin/sh\nexec c++ "$@" -DNUMBER={value}\n')
        compiler.chmod(0o700)
        monkeypatch.setenv("CXX", str(compiler))
        assert number("host", f"-I{tmp_path}") == value
    monkeypatch.setattr("offload_args.kernels.compilers._by_host", no_compiler)
    assert number("host", f"-I{tmp_path}") == 2
    monkeypatch.setattr("offload_args.kernels.compilers.processor", lambda: "flags : another")
    with pytest.raises(AssertionError, match="compiled again"):
        number("host", f"-I{tmp_path}")


def test_the_features_of_the_cpu_are_known() -> None:
    assert len(dependencies.processor().splitlines()) > 2


@pytest.mark.parametrize(
    ("source", "listed"),
    [
        ("#include HEADER\n", None),
        ("#if __has_include(HEADER)\n#endif\n", None),
        ("#if 0\n#  include <a.h>\n#endif\n", (("{0}/a.h",), ("a.h",))),
        ("#if __has_include(<b.h>)\n#endif\n", ((), ("b.h", "{0}/b.h"))),
        ('#inc\\\nlude "a.h"', (("{0}/a.h",), ("a.h",))),
    ],
)
def test_headers_are_found_in_sources_that_no_compiler_lists(
    tmp_path: Path, source: str, listed: tuple[tuple[str, ...], tuple[str, ...]] | None
) -> None:
    (tmp_path / "a.h").write_text("")
    files = dependencies.scanned(source, [f"--include-path={tmp_path}"])
    if listed is None or files is None:
        assert files is listed
        return
    expected = [[path.format(tmp_path) for path in paths] for paths in listed]
    assert list(files.read) == expected[0] and set(expected[1]) <= set(files.absent)


@pytest.mark.later
@pytest.mark.parametrize(
    "damage", [b"\x7fELF", *(pytest.param(content, marks=pytest.mark.slow) for content in (b"", b"no module"))]
)
def test_a_damaged_file_is_compiled_again(cached: Path, damage: bytes) -> None:
    Kernel.compile(ONE_SOURCE, "vadd", VADD, device="host")
    files = list(cached.iterdir())
    for file in files:
        file.write_bytes(damage)
    a, c = ramp(N), np.zeros(N, np.float32)
    offload(Kernel.compile(ONE_SOURCE, "vadd", VADD, device="host"), a, a, c, N, device="host")
    np.testing.assert_array_equal(c, 2 * a)
    assert all(file.read_bytes() != damage for file in files)


def test_a_folder_or_file_that_others_can_write_is_not_used(cached: Path, tmp_path: Path) -> None:
    cache.store("key", b"ours")
    assert cache.find("key") == b"ours"
    (cached / "key").chmod(0o620)
    assert cache.find("key") is None
    (cached / "key").chmod(0o600)
    cached.chmod(0o777)
    with pytest.warns(errors.PerformanceWarning, match=r"nothing is kept in .*: others can write it; set OFFLOAD"):
        assert cache.find("key") is None
    cache.store("other", b"ours")  # and gives no further warning
    cached.chmod(0o700)
    assert cache.find("other") is None
    (cached / "link").symlink_to(cached / "key")
    assert cache.find("link") is None
    (cached / "folder").mkdir(mode=0o700)
    assert cache.find("folder") is None
    os.mkfifo(cached / "pipe", 0o600)
    assert cache.find("pipe") is None  # find() does not wait for a writer


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("relative/folder", "relative/folder: the path is not absolute"),
        ("/proc/no/folder", "/proc/no/folder: it can't be made"),
        ("{}/link", "/link: it is a link"),
    ],
)
def test_a_folder_that_is_not_used_is_named_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str, words: str
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setenv("OFFLOAD_ARGS_CACHE", setting.format(tmp_path))
    monkeypatch.setattr(cache, "_said", set())
    monkeypatch.chdir(tmp_path)
    with pytest.warns(errors.PerformanceWarning, match=words):
        cache.store("key", b"bytes")
    assert cache.find("key") is None and os.listdir(tmp_path) == ["link"]


def test_without_a_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFLOAD_ARGS_CACHE", "off")
    cache.store("key", b"bytes")
    assert cache.find("key") is None


def test_what_is_no_source_or_signature_is_told_what_to_write(device: str, tmp_path: Path) -> None:
    types = [InOut[np.float32], np.int32]
    source = """
    #include <offload_args/kernel.h>
    OA_KERNEL(twice, oa::InOut<float> x, int n) {
      for (auto element : x.mine(oa::Linear1D(n), here)) *element *= 2;
    }"""
    (tmp_path / "twice.cu").write_text(source)
    for path in (tmp_path / "twice.cu", str(tmp_path / "twice.cu")):
        with pytest.raises(errors.ArgumentError, match=r"the path '.*'; pass pathlib\.Path\('.*'\)\.read_text\(\)$"):
            Kernel.compile(path, "twice", types, device=device)  # type: ignore[arg-type]
    with pytest.raises(errors.SignatureError, match=r"signature needs a list with a type for each parameter, got str$"):
        Kernel.compile(source, "twice", "float*, int", device=device)
    with pytest.raises(errors.ModuleError, match=r"it has none: a kernel begins with OA_KERNEL\(name, \.\.\.\)$"):
        Kernel.compile("typedef int number;", "twice", types, device=device)
    Kernel.compile(source, "twice", types, device=device).save(tmp_path / "twice")
    module = Module.load(tmp_path / "twice")
    with pytest.raises(errors.SignatureError, match=r"by position: write module\.kernel\('twice', \*types\)$"):
        module.kernel("twice", types)
    with pytest.raises(AttributeError, match=r"^Module has no attribute 'twice'; use kernel\('twice', \*types\)$"):
        _ = module.twice  # type: ignore[attr-defined]
