"""A program without Python is accelerated by LD_PRELOAD, with the names that Fortran gives to BLAS and LAPACK."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from offload_args import get_library, libraries

# A library of BLAS with Fortran's names, which counts its calls.
SLOW_BLAS = """
int slow_calls;
int isamax_(const int *n, const float *x, const int *incx) {
  int best = 0;
  for (int i = 1; i < *n; i++) if (x[i * *incx] > x[best * *incx]) best = i;
  return *n < 1 ? 0 : best + 1;
}
void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k, const double *alpha,
            const double *A, const int *lda, const double *B, const int *ldb, const double *beta, double *C,
            const int *ldc) {
  (void)ta, (void)tb;
  slow_calls++;
#ifdef COMPUTES_NOTHING
  return;
#endif
  for (int j = 0; j < *n; j++)
    for (int i = 0; i < *m; i++) {
      double sum = 0;
      for (int l = 0; l < *k; l++) sum += A[i + l * *lda] * B[l + j * *ldb];
      C[i + j * *ldc] = *alpha * sum + (*beta ? *beta * C[i + j * *ldc] : 0);
    }
}
"""
# It multiplies three times or TIMES, in the program, or in a module that the program loads later.
WORK = """
#include <stdio.h>
#include <stdlib.h>
enum { N = 120 };
extern void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *,
                   const int *, const double *, const int *, const double *, double *, const int *);
int work(void) {
  static double A[N * N], B[N * N], C[N * N];
  const int n = N;
  const double one = 1, zero = 0;
  for (int i = 0; i < N * N; i++) A[i] = i % 7, B[i] = i % 5;
  const int times = getenv("TIMES") ? atoi(getenv("TIMES")) : 3;
  for (int i = 0; i < times; i++) dgemm_("N", "N", &n, &n, &n, &one, A, &n, B, &n, &zero, C, &n);
  double sum = 0;
  for (int i = 0; i < N * N; i++) sum += C[i] * (i % 3 + 1);
  printf("%.0f\\n", sum);
  return 0;
}
"""
LINKED = "extern int work(void); int main(void) { return work(); }"
LOADED_LATER = """
#include <dlfcn.h>
int main(int argc, char **argv) {
  union { void *address; int (*function)(void); } work;
  void *module = dlopen(argv[argc - 1], RTLD_NOW);
  if (!module || !(work.address = dlsym(module, "work"))) return 9;
  return work.function();
}
"""
# A driver that takes a second to begin, and must not end meanwhile. The file BEGUN appears when it begins.
SLOW_DRIVER = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#define DRIVER(name, symbol, ...) int symbol(void) { return 100; }
#define OPTIONAL DRIVER
#define cuInit other_init
#include "cuda.def"
#undef cuInit
static volatile int begins;
static __attribute__((destructor)) void end(void) { if (begins) _exit(11); }
int cuInit(unsigned flags) {
  begins = 1;
  close(open(getenv("BEGUN"), O_CREAT | O_WRONLY, 0600));
  sleep(1);
  begins = 0;
  return flags ? 1 : 100;
}
"""
# It makes a product that is worth opening a device, and ends as soon as the device is being opened. The library of its
# product computes nothing.
SHORT = """
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
enum { N = 20000 };
extern void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *,
                   const int *, const double *, const int *, const double *, double *, const int *);
int main(void) {
  const size_t nbytes = sizeof(double) * N * N;
  const int n = N, reading = PROT_READ | PROT_WRITE, fresh = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const double one = 1, zero = 0;
  double *A = mmap(NULL, nbytes, reading, fresh, -1, 0), *C = mmap(NULL, nbytes, reading, fresh, -1, 0);
  if (A == MAP_FAILED || C == MAP_FAILED) return 9;
  dgemm_("N", "N", &n, &n, &n, &one, A, &n, A, &n, &zero, C, &n);
  while (access(getenv("BEGUN"), F_OK)) usleep(1000);
  return 0;
}
"""
# Its library loads the module, as R's does.
INTERPRETER = "int load(int, char **); int main(int count, char **words) { return load(count, words); }"
# It prints the number of calls that the slow library made, after all other output.
COUNTED = """
#include <stdio.h>
extern int slow_calls;
static __attribute__((destructor)) void tell(void) { printf("%d calls of the slow library\\n", slow_calls); }
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preloaded")

    def build(name: str, text: str, *options: str) -> None:
        source = folder / f"{name}.c"
        source.write_text(text)
        subprocess.run(["gcc", "-O1", "-Wall", "-o", name, source.name, *options], cwd=folder, check=True)

    here = ["-L.", "-Wl,-rpath,$ORIGIN"]
    build("libslow.so", SLOW_BLAS, "-shared", "-fPIC")
    build("work.so", WORK + COUNTED, "-shared", "-fPIC", *here, "-lslow")
    build("linked", LINKED + WORK + COUNTED, *here, "-lslow")
    build("loaded_later", LOADED_LATER, "-ldl")
    build("libR.so", LOADED_LATER.replace("main", "load"), "-shared", "-fPIC")
    build("interpreter", INTERPRETER, *here, "-lR")
    build("libnothing.so", SLOW_BLAS, "-shared", "-fPIC", "-DCOMPUTES_NOTHING")
    build("short", SHORT, *here, "-lnothing")
    build("libcuda.so.1", SLOW_DRIVER, "-shared", "-fPIC", f"-I{Path(__file__).parents[2] / 'csrc/backends'}")
    return folder


def output_of(folder: Path, name: str, setting: str = "", path: str = "") -> tuple[list[str], str]:
    """Return the lines that a program prints, and the text on stderr. `path`: of the device's BLAS."""
    library = {"cuda": "cublas", "hip": "rocblas"}.get(setting.partition(":")[0], "cblas")
    environment = os.environ | {"LD_PRELOAD": str(get_library()), "OFFLOAD_ARGS_ACCELERATE": setting}
    if ":77" not in setting:  # Python searches more places
        environment[f"OFFLOAD_ARGS_{library.upper()}"] = path or libraries.load(library).path
    ran = subprocess.run(
        [folder / name, folder / "work.so"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines(), ran.stderr


@pytest.mark.parametrize("name", ["linked", "loaded_later", "interpreter"])
def test_calls_of_a_preloaded_program_go(programs: Path, device: str, name: str) -> None:
    plain, said = output_of(programs, name)
    assert plain[1:] == ["3 calls of the slow library"]
    assert said == ""
    gone, said = output_of(programs, name, f"{device},margin=0,report")
    assert gone == [plain[0], "0 calls of the slow library"], said
    assert "3 calls of BLAS and LAPACK, 3 went" in said
    assert "dgemm 120 x 120 x 120: 3 calls, 3 went" in said


def test_a_preloaded_program_runs_as_it_is_without_its_device(programs: Path) -> None:
    plain, _ = output_of(programs, "linked")
    gone, said = output_of(programs, "linked", "cuda:77,margin=0,report")
    assert gone == plain
    assert "3 calls of BLAS and LAPACK, 0 went" in said
    assert "3 device not open" in said


def test_the_report_says_why_calls_failed(programs: Path) -> None:
    plain, _ = output_of(programs, "linked")
    gone, said = output_of(programs, "linked", "host,margin=0,report", "here/libblas.so")
    assert gone == plain
    assert "3 calls, 0 went" in said and "device failed" in said
    reason = 'cblas: OFFLOAD_ARGS_CBLAS needs an absolute path, got "here/libblas.so"'
    assert f"a call on the device failed: {reason}" in said


def test_the_report_has_a_singular(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMES", "1")
    _, said = output_of(programs, "linked", "host,margin=0,report")
    assert "1 call of BLAS and LAPACK, 1 went" in said
    assert "dgemm 120 x 120 x 120: 1 call, 1 went" in said


def test_a_program_that_ends_waits_for_a_driver_that_begins(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEGUN", str(tmp_path / "begun"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(programs))  # for libcuda.so.1
    _, said = output_of(programs, "short", "auto,report")
    assert "1 call of BLAS and LAPACK, 0 went" in said
    assert "1 device not open" in said


@pytest.mark.parametrize("setting", ["host,reports", "host,margin=-1", "host,margin=", "host,margin=1x", "host,,"])
def test_a_wrong_setting_is_named_and_the_program_runs_as_it_is(programs: Path, setting: str) -> None:
    plain, _ = output_of(programs, "linked")
    gone, said = output_of(programs, "linked", setting)
    assert gone == plain
    assert said.startswith(f"OFFLOAD_ARGS_ACCELERATE={setting}: needs")
