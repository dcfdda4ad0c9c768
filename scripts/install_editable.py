"""Installs the package into this Python for development, as `make` does after an edit of C or of the bindings.

    python scripts/install_editable.py [--whole] [EXTRAS]

pip installs everything, with the extras. If pip has installed this checkout before, and the build installs the same
files as it did then, the build and its own installation are enough, and take two seconds less. The package then keeps
the version that it had. --whole: by pip in any case, such as after a change of pyproject.toml.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "editable"  # as pyproject.toml says
PACKAGE = "offload_args/"


def cached(variable: str) -> str:
    """Return a variable of the build's cache, or ""."""
    path = BUILD / "CMakeCache.txt"
    match = re.search(rf"^{variable}:\w+=(.*)$", path.read_text() if path.exists() else "", re.MULTILINE)
    return match[1] if match else ""


def files_of_pip() -> set[str]:
    """Return the compiled and generated files that pip has installed from this checkout, relative to its folder."""
    try:
        distribution = importlib.metadata.distribution("offload-args")
    except importlib.metadata.PackageNotFoundError:
        return set()
    if f'"{ROOT.as_uri()}"' not in (distribution.read_text("direct_url.json") or ""):
        return set()
    files = {path.as_posix() for path in distribution.files or ()}
    return {name for name in files if name.startswith(PACKAGE) and "/__pycache__/" not in name}


def installed_by_build(packages: Path) -> bool:
    """Build, install what has changed into the folder of packages, and return whether pip has the same files."""
    known = files_of_pip()
    if not known or cached("CMAKE_HOME_DIRECTORY") != str(ROOT) or cached("Python_EXECUTABLE") != sys.executable:
        return False
    cmake = cached("CMAKE_COMMAND")
    built = subprocess.run([cmake, "--build", BUILD], stdout=subprocess.PIPE, text=True)
    if built.returncode:  # Ninja prints a compiler's errors to stdout
        print(built.stdout, file=sys.stderr)
    built.check_returncode()
    install = [cmake, "--install", BUILD, "--strip", "--prefix", packages]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    installed = (BUILD / "install_manifest.txt").read_text().splitlines()
    return {Path(path).relative_to(packages).as_posix() for path in installed} == known


def main() -> int:
    """Install the package; return the exit status of the command that failed, or 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--whole", action="store_true", help="install by pip in any case")
    parser.add_argument("extras", nargs="?", default="", help="the package's extras for pip, such as test,demo")
    args = parser.parse_args()
    try:
        if not args.whole and installed_by_build(Path(sysconfig.get_path("platlib"))):
            return 0
        # The tools of the build are in this Python's environment. pip would make another one for each run, and nothing
        # that was compiled would be kept.
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        extras = f"[{args.extras}]" if args.extras else ""
        subprocess.run([*pip, "--no-build-isolation", "--editable", f".{extras}"], check=True, cwd=ROOT)
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
