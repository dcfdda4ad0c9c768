"""Modules of the three kernels of programs.py in every format, for tests that only read them.

If nvcc or clang is installed, the modules that it builds are included. This module also builds a cubin, a fatbin and an
HSACO with the same facts byte by byte, so that every machine tests every reader.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from kernels.programs import INCLUDE, ONE_SOURCE, PTX, shared_object

CUDA = """\
struct Line { float slope; double start; };
#define I long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x
extern "C" __global__ void vadd(const float *a, const float *b, float *c, int n) { I; if (i < n) c[i] = a[i] + b[i]; }
extern "C" __global__ void relu(float *x, int n) { I; if (i < n) x[i] = x[i] > 0 ? x[i] : 0; }
extern "C" __global__ void line(double *y, Line l, long long n) { I; if (i < n) y[i] = l.slope * i + l.start; }
"""
OPENCL = """\
typedef struct { float slope; double start; } Line;
#define I long i = (long)__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x()
kernel void vadd(global const float *a, global const float *b, global float *c, int n) {
  I;
  if (i < n) c[i] = a[i] + b[i];
}
kernel void relu(global float *x, int n) { I; if (i < n) x[i] = x[i] > 0 ? x[i] : 0; }
kernel void line(global double *y, Line l, long n) { I; if (i < n) y[i] = l.slope * i + l.start; }
"""
# (offset, bytes, whether it is a pointer) of each parameter
Kernels = dict[str, tuple[tuple[int, int, bool], ...]]
KERNELS: Kernels = {
    "vadd": ((0, 8, True), (8, 8, True), (16, 8, True), (24, 4, False)),
    "relu": ((0, 8, True), (8, 4, False)),
    "line": ((0, 8, True), (8, 16, False), (24, 8, False)),
}


def elf(machine: int, abi_version: int, flags: int, sections: Sequence[tuple[str, int, bytes]]) -> bytes:
    """Return an ELF file of (name, type, contents). The names of symbols are in the section after the symbols."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _, _ in sections) + b".shstrtab\0"
    body, rows, at = b"", [bytes(64)], 1
    for name, kind, contents in (*sections, (".shstrtab", 3, names)):
        link = len(rows) + 1 if kind == 11 else 0
        rows.append(struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(body), len(contents), link, 0, 1, 0))
        body += contents + bytes(-len(contents) % 8)
        at += len(name) + 1
    header = struct.pack(
        "<4s5B7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 65, abi_version, 2, machine, 1, 0, 0, 64 + len(body), flags,
        64, 56, 0, 64, len(rows), len(rows) - 1,
    )  # fmt: skip
    return header + body + b"".join(rows)


def made_cubin(shared: Sequence[tuple[str, int]] = ()) -> bytes:
    """Return a cubin. `shared` has further sections of shared memory, by name and size."""
    sections = [(f".nv.shared.{name}", 8, bytes(nbytes)) for name, nbytes in shared]
    for name, parameters in KERNELS.items():
        info = b""
        for ordinal, (offset, nbytes, pointer) in reversed(list(enumerate(parameters))):
            flags = nbytes << 18 | 0x1F000 | (0x500 if pointer else 0)
            info += struct.pack("<BBHIHHI", 4, 0x17, 12, 0, ordinal, offset, flags)
        info += struct.pack("<BBH", 3, 0x19, parameters[-1][0] + parameters[-1][1])
        sections += [(f".text.{name}", 1, bytes(128)), (f".nv.info.{name}", 0x70000000, info)]
    return elf(190, 8, 0x6005A04, sections)


def made_fatbin() -> bytes:
    entries = b""
    for kind, payload in ((2, made_cubin()), (1, PTX.encode() + b"\0")):
        payload += bytes(-len(payload) % 8)
        entries += struct.pack("<HHIQIIHHI32x", kind, 0x101, 64, len(payload), 0, 0, 8, 1, 90) + payload
    return struct.pack("<4sHHQ", b"\x50\xed\x55\xba", 1, 16, len(entries)) + entries


def packed(value: object) -> bytes:
    """Return texts, numbers, lists and maps as MessagePack, each in its shortest form."""
    if isinstance(value, int):
        return _head(value, 0x00, 128, 0xCC)
    if isinstance(value, str):
        return _head(len(value.encode()), 0xA0, 32, 0xD9) + value.encode()
    if isinstance(value, list):
        return _head(len(value), 0x90, 16, 0xDB) + b"".join(map(packed, value))
    assert isinstance(value, dict)
    return _head(len(value), 0x80, 16, 0xDD) + b"".join(packed(item) for pair in value.items() for item in pair)


def _head(number: int, short: int, below: int, long: int) -> bytes:
    """Return a number or a length, in one byte, or in 1, 2, 4 (or 8) bytes after a byte for the form.

    Lists and maps have no form of 1 byte; their `long` is the byte before the byte for the form of 2.
    """
    if number < below:
        return bytes([short | number])
    least = 1 if long in (0xDB, 0xDD) else 0
    width = next(width for width in range(least, 4) if number < 1 << (8 << width))
    return bytes([long + width]) + number.to_bytes(1 << width, "big")


def made_hsaco(
    target: str = "gfx90a",
    described: Kernels = KERNELS,
    *,
    code: bytes = b"",
    variables: dict[str, bytes] | None = None,
    version: int = 5,
    **fields: int,
) -> bytes:
    """Return an HSACO with no code of its own.

    code: a shared object, which the double of HIP runs. variables: symbols and their bytes. version: the version of the
    code object. fields: values that replace values of the metadata, such as vgpr_count=9.
    """
    kernels = []
    for name, parameters in described.items():
        arguments = [
            {".offset": offset, ".size": nbytes, ".value_kind": "global_buffer" if pointer else "by_value"}
            for offset, nbytes, pointer in parameters
        ]
        end = -(-max(offset + nbytes for offset, nbytes, _ in parameters) // 8) * 8
        arguments.append({".offset": end, ".size": 4, ".value_kind": "hidden_block_count_x"})
        kernels.append(
            {".name": name, ".args": arguments, ".kernarg_segment_size": end + 256, ".group_segment_fixed_size": 0}
            | {".vgpr_count": 8, ".max_flat_workgroup_size": 1024, ".uniform_work_group_size": 1}
            | {f".{field}": value for field, value in fields.items()}
        )  # fmt: skip
    metadata = packed({"amdhsa.target": f"amdgcn-amd-amdhsa--{target}", "amdhsa.kernels": kernels})
    note = struct.pack("<III8s", 7, len(metadata), 32, b"AMDGPU") + metadata + bytes(-len(metadata) % 4)
    symbols, names, values = bytes(24), b"\0", b""
    for name, value in (variables or {}).items():
        symbols += struct.pack("<IBBHQQ", len(names), 0x11, 0, 1, len(values), len(value))
        names, values = names + name.encode() + b"\0", values + value
    sections = [(".rodata", 1, values), (".dynsym", 11, symbols), (".dynstr", 3, names), (".note", 7, note)]
    sections += [(".double", 1, code)] if code else []
    processor, *features = target.split(":")
    flags = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx1100": 0x41}[processor]
    for name, place in (("xnack", 8), ("sramecc", 10)):  # 1 for both, 2 for off, 3 for on
        flags |= (3 if f"{name}+" in features else 2 if f"{name}-" in features else 1) << place
    return elf(224, version - 2, flags, sections)


def bundle(images: dict[str, bytes]) -> bytes:
    """Return a bundle of HSACOs by target."""
    entries = {"host-x86_64-unknown-linux--": b""} | {f"hipv4-amdgcn-amd-amdhsa--{t}": i for t, i in images.items()}
    at = 24 + 8 + sum(24 + len(triple) for triple in entries)
    head, body = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)), b""
    for triple, image in entries.items():
        head += struct.pack("<QQQ", at + len(body), len(image), len(triple)) + triple.encode()
        body += image
    return head + body


@cache
def compiled(compiler: str, source: str, suffix: str, *options: str) -> bytes:
    with TemporaryDirectory() as folder:
        path, built = Path(folder) / f"kernels{suffix}", Path(folder) / "made"
        path.write_text(source)
        subprocess.run([compiler, *options, "-o", built, path], check=True, capture_output=True)
        return built.read_bytes()


_FOUND = [n for n in range(21, 13, -1) if shutil.which(f"clang-{n}") and shutil.which(f"ld.lld-{n}")]
CLANG = f"clang-{_FOUND[0]}" if _FOUND else None
TARGETS = ("gfx90a", "gfx942", "gfx1100")
AMD = ("-x", "cl", "-cl-std=CL2.0", "--target=amdgcn-amd-amdhsa", "-nogpulib", "-O2", "-mcode-object-version=5")
HIP = ("--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc", "-O2", "-std=c++17", f"-I{INCLUDE}",
       "-mcode-object-version=5", "-Wall", "-Wextra", "-Werror")  # fmt: skip
FORMATS: dict[str, Callable[[], bytes]] = {
    "PTX": PTX.encode,
    "shared object": shared_object,
    "cubin": made_cubin,
    "fatbin": made_fatbin,
    "HSACO": made_hsaco,
    "bundle": lambda: bundle({"gfx90a": made_hsaco(), "gfx1100": made_hsaco("gfx1100")}),
}
if shutil.which("nvcc"):
    for number in ("75", "90", "100"):
        FORMATS[f"nvcc's cubin of sm_{number}"] = partial(compiled, "nvcc", CUDA, ".cu", "-cubin", f"-arch=sm_{number}")
    FORMATS["nvcc's PTX"] = partial(compiled, "nvcc", CUDA, ".cu", "-ptx")
    FORMATS["nvcc's fatbin"] = partial(compiled, "nvcc", CUDA, ".cu", "-fatbin", "-arch=sm_90")
if CLANG:
    for target in TARGETS:
        FORMATS[f"clang's HSACO for {target}"] = partial(compiled, CLANG, OPENCL, ".cl", *AMD, f"-mcpu={target}")
        options = (*HIP, f"--offload-arch={target}")
        FORMATS[f"clang's HSACO of one source for {target}"] = partial(compiled, CLANG, ONE_SOURCE, ".hip", *options)


def hip_module(source: str = ONE_SOURCE, described: Kernels = KERNELS) -> bytes:
    """Return a bundle for AMD GPUs: clang's for the source, or one without code, which is only for the double."""
    if CLANG is None:
        return bundle({target: made_hsaco(target, described) for target in TARGETS})
    return bundle({t: compiled(CLANG, source, ".hip", *HIP, f"--offload-arch={t}") for t in TARGETS})


def module_for(device: str) -> bytes:
    """Return a module of the three kernels that the device can load."""
    backend = device.partition(":")[0]
    return PTX.encode() if backend == "cuda" else hip_module() if backend == "hip" else shared_object()
