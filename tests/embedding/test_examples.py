"""Each folder of examples/embedding is a separate project, which is built outside of the checkout, and run.

The projects are built against this installation, or against the wheel that OFFLOAD_ARGS_WHEEL names.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.processes import output_of, program_of_python_or_skip, program_or_skip

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "embedding"
PROGRAMS = ("c_cmake", "c_kernel", "c_pkgconfig", "cpp_cmake", "fortran")
COMPILERS = {"cuda": "nvcc", "hip": "hipcc"}  # the compilers for the kernel of c_kernel
EXTENSIONS = ("c_extension", "cffi", "cython", "nanobind", "pybind11")
EIGENVALUE = "8.938402115629"


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the package: this Python, or one with the wheel and all other packages of this Python."""
    wheel = os.environ.get("OFFLOAD_ARGS_WHEEL")
    if not wheel:
        return Path(sys.executable)
    folder = tmp_path_factory.mktemp("installed")
    output_of(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder)
    own = Path(
        output_of(folder / "bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder)[
            :-1
        ]
    )
    (own / "packages.pth").write_text(sysconfig.get_path("purelib"))  # a .pth in this folder is not read
    output_of(sys.executable, "-m", "pip", "install", "--no-deps", "--target", own, wheel, folder=folder)
    spec = importlib.util.find_spec("scipy_openblas32")  # next to the package, where pip would install it
    assert spec is not None and spec.origin is not None
    (own / "scipy_openblas32").symlink_to(Path(spec.origin).parent)
    return folder / "bin/python"


@pytest.fixture(scope="session")
def built(interpreter: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that builds the project of a folder once, and returns the folder that has the result."""
    tree = shutil.copytree(EXAMPLES, tmp_path_factory.mktemp("examples") / "embedding")
    done: dict[str, Path] = {}

    def asked(module: str, option: str) -> str:
        return output_of(interpreter, "-m", module, *option.split(), folder=tree).strip()

    def build(name: str) -> Path:
        folder = tree / name
        if (folder / "CMakeLists.txt").exists():
            cmake = program_of_python_or_skip("cmake")
            options = [f"-Doffload_args_DIR={asked('offload_args', 'config --cmake-dir')}"]
            options += [f"-DPython_EXECUTABLE={interpreter}", "-DCMAKE_BUILD_TYPE=Release"]
            options += [f"-Dpybind11_DIR={asked('pybind11', '--cmakedir')}"] if name == "pybind11" else []
            options += [f"-Dnanobind_DIR={asked('nanobind', '--cmake_dir')}"] if name == "nanobind" else []
            output_of(cmake, "-S", folder, "-B", folder / "build", *options, folder=folder)
            output_of(cmake, "--build", folder / "build", "--parallel", "2", folder=folder)
            return folder / "build"
        if (folder / "Makefile").exists():
            output_of("make", folder=folder, PKG_CONFIG_PATH=asked("offload_args", "config --pkg-config-dir"))
        elif (folder / "setup.py").exists():
            output_of(interpreter, "setup.py", "build_ext", "--inplace", folder=folder)
        else:
            output_of(interpreter, "build.py", folder=folder)
        return folder

    def once(name: str) -> Path:
        if name not in done:
            done[name] = build(name)
        return done[name]

    return once


def test_every_folder_is_one_of_these() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name[0].islower()} == {
        *PROGRAMS,
        *EXTENSIONS,
        "lanczos",  # test_lanczos.py
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_what_numpy_does(name: str, device: str, built: Callable[[str], Path]) -> None:
    if name == "fortran":
        program_or_skip("gfortran")
    compiler = COMPILERS.get(device.partition(":")[0])
    if name == "c_kernel" and compiler:
        program_or_skip(compiler)
    assert output_of(built(name) / "power", device, 200, 50, folder=built(name)).strip() == EIGENVALUE


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTENSIONS)
def test_an_extension_computes_what_numpy_does(
    name: str, device: str, built: Callable[[str], Path], interpreter: Path
) -> None:
    said = output_of(interpreter, EXAMPLES / "compare.py", built(name), "--device", device, folder=EXAMPLES)
    assert EIGENVALUE in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nanobind", "pybind11"])
def test_type_casters_refuse_and_return_pointers(
    name: str, device: str, built: Callable[[str], Path], interpreter: Path
) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(built(name))!r})
import numpy as np, power
from offload_args import In, offload_args
from offload_args.errors import DirectionError, ExtentError, StalePointerError
x, y, z, w = np.ones(4), np.ones(4, np.float32), np.ones((2, 2)), np.ones(4)
def refused(error, *arguments):
    try:
        power.iterate(*arguments, 1)
    except error as e:
        assert error is TypeError or type(e) is error, type(e)
        return str(e)
    raise AssertionError(error)
with offload_args(x, y, In(z), w, device={device!r}) as (dx, dy, dz, dw):
    whole = power.whole(dx[1:])
    assert (whole.shape, whole.dtype) == ((3,), np.float64), whole
    said = refused(TypeError, dz, dx, dy)
    assert "DevicePtr[float64]" in said and ({name!r} == "nanobind" or "DevicePtr(float32" in said), said
    refused(TypeError, dz, x, dx)
    refused(TypeError, None, dx, dx)
    assert "was lent as In" in refused(DirectionError, dw.reshape(2, 2), dx[:2], dz[0])
    refused(ExtentError, dz, dx, dw[:1])
refused(StalePointerError, dz, dx, dx)
"""
    output_of(interpreter, "-c", code, folder=EXAMPLES)
