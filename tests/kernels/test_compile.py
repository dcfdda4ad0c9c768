"""Kernels from source, and the partitions of kernel.h: one source for every device."""

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
from offload_args import In, InOut, Kernel, Out, errors, offload, offload_args
from offload_args.kernels import cache, rtc

ONE_SOURCE = """\
#include <offload_args/kernel.h>

OA_KERNEL(vadd, oa::In<float> a, oa::In<float> b, oa::Out<float> c, int n) {
  for (auto one : c.mine(oa::Linear1D(n), here)) *one = a[one.index()] + b[one.index()];
}
OA_KERNEL(relu, oa::InOut<float> x, int n) {
  for (auto one : x.mine(oa::GridStride1D(n), here))
    if (*one < 0) *one = 0;
}
"""
VADD = (In[np.float32], In[np.float32], Out[np.float32], np.int32)
N = 1037


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that is empty."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("OFFLOAD_ARGS_CACHE", str(folder))
    return folder


def test_one_source_runs_on_every_device(cached: Path, device: str) -> None:
    a, b, c = ramp(N), ramp(N)[::-1].copy(), np.zeros(N, np.float32)
    vadd = Kernel.compile(ONE_SOURCE, "vadd", VADD, device=device)
    relu = Kernel.compile(ONE_SOURCE, "relu", [InOut[np.float32], np.int32], device=device)
    with offload_args(a, b, c, device=device) as (da, db, dc):
        vadd[-(-N // 128), 128](da, db, dc, N)
    np.testing.assert_array_equal(c, a + b)
    c -= 1000
    offload(relu, c, N, grid=64 if device.startswith("cuda") else 3, block=32, device=device)
    np.testing.assert_array_equal(c, np.maximum(a + b - 1000, 0))


def test_a_kernel_compiled_for_one_device_compiles_for_others_when_used_there(cached: Path) -> None:
    relu = Kernel.compile(ONE_SOURCE, "relu", [InOut[np.float32], np.int32], device="host")
    for name in ("host", "sim:0"):
        x = ramp(N) - 500
        offload(relu, x, N, device=name)
        np.testing.assert_array_equal(x, np.maximum(ramp(N) - 500, 0))


def test_a_source_that_does_not_compile_gives_the_log(cached: Path, device: str) -> None:
    with pytest.raises(errors.ModuleError, match=r"(?s)refuses vadd.*error.*unheard_of"):
        Kernel.compile(ONE_SOURCE.replace("a[one", "unheard_of[one"), "vadd", VADD, device=device)
    with pytest.raises(errors.ModuleError, match="refuses vadd"):
        Kernel.compile(ONE_SOURCE, "vadd", VADD, options=["--no-such-option"], device=device)


def test_options_reach_the_compiler(cached: Path, device: str) -> None:
    source = ONE_SOURCE.replace("+ b[", "+ FACTOR * b[")
    vadd = Kernel.compile(source, "vadd", VADD, options=["-DFACTOR=1"], device=device)
    a, b, c = ramp(N), ramp(N), np.zeros(N, np.float32)
    offload(vadd, a, b, c, N, device=device)
    np.testing.assert_array_equal(c, a + b)


# It finds the other library only if that is loaded already.
NVRTC = """\
#include <dlfcn.h>
int nvrtcVersion(int *major, int *minor) {
  *major = 99;
  *minor = dlopen("libnvrtc-builtins.so.99.7", RTLD_NOW) ? 7 : 0;
  return 0;
}
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


WRONG: dict[str, tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = {
    "bytes": (errors.ArgumentTypeError, "source needs a string", (b"", "vadd", VADD), {}),
    "no name": (errors.ArgumentTypeError, "name needs a string", (ONE_SOURCE, None, VADD), {}),
    "half a character": (errors.ArgumentError, r"source has '\\ud800' at index 2", ("//\ud800", "vadd", VADD), {}),
    "half a name": (errors.ArgumentError, r"name has '\\udcff' at index 0", (ONE_SOURCE, "\udcff", VADD), {}),
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


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_a_source_is_compiled_once(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Kernel.compile(ONE_SOURCE, "vadd", VADD, device="host")
    (file,) = cached.iterdir()
    assert stat.S_IMODE(cached.stat().st_mode) == 0o700 and stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.stat().st_mtime_ns
    monkeypatch.setattr("offload_args.kernels.compilers._by_host", None)  # a second compilation would raise
    Kernel.compile(ONE_SOURCE, "vadd", VADD, device="host")
    assert file.stat().st_mtime_ns == before


def test_another_source_or_option_is_another_file(cached: Path) -> None:
    Kernel.compile(ONE_SOURCE, "vadd", VADD, device="host")
    Kernel.compile(ONE_SOURCE + "\n", "vadd", VADD, device="host")
    Kernel.compile(ONE_SOURCE, "vadd", VADD, options=["-O1"], device="host")
    assert len(list(cached.iterdir())) == 3


@pytest.mark.parametrize(
    "damage", [b"\x7fELF", *(pytest.param(one, marks=pytest.mark.slow) for one in (b"", b"no module"))]
)
def test_a_damaged_file_is_compiled_again(cached: Path, damage: bytes) -> None:
    Kernel.compile(ONE_SOURCE, "vadd", VADD, device="host")
    (file,) = cached.iterdir()
    file.write_bytes(damage)
    a, c = ramp(N), np.zeros(N, np.float32)
    offload(Kernel.compile(ONE_SOURCE, "vadd", VADD, device="host"), a, a, c, N, device="host")
    np.testing.assert_array_equal(c, 2 * a)
    assert file.read_bytes() != damage


def test_a_folder_or_file_that_others_can_write_is_not_used(cached: Path) -> None:
    cache.store("key", b"ours")
    assert cache.find("key") == b"ours"
    (cached / "key").chmod(0o620)
    assert cache.find("key") is None
    (cached / "key").chmod(0o600)
    cached.chmod(0o777)
    assert cache.find("key") is None
    cache.store("other", b"ours")
    cached.chmod(0o700)
    assert cache.find("other") is None
    (cached / "link").symlink_to(cached / "key")
    assert cache.find("link") is None
    (cached / "folder").mkdir(mode=0o700)
    assert cache.find("folder") is None
    os.mkfifo(cached / "pipe", 0o600)
    assert cache.find("pipe") is None  # and does not wait for a writer


@pytest.mark.parametrize("setting", ["off", "relative/folder", "/proc/no/folder"])
def test_without_a_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str) -> None:
    monkeypatch.setenv("OFFLOAD_ARGS_CACHE", setting)
    monkeypatch.chdir(tmp_path)
    cache.store("key", b"bytes")
    assert cache.find("key") is None and not os.listdir(tmp_path)
