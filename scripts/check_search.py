"""Checks that the search of a built site finds the right page by users' words, among the first three.

    python scripts/check_search.py build/docs/html

It runs the site's own search in Node. It prints one line for each fault and exits with 1, or prints the number of
queries. Without Node, it reports that nothing was searched.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

FIRST = 3
# {words of a user: pages}. At least one of the pages has to be among the first results.
QUERIES = {
    "solve linear system": ("guide/lapack", "guide/linalg"),
    "matrix multiplication": ("guide/blas", "guide/linalg"),
    "matmul": ("guide/blas", "guide/linalg"),
    "matrix product": ("guide/blas", "guide/linalg"),
    "least squares": ("guide/lapack", "guide/linalg"),
    "svd": ("guide/lapack", "guide/linalg"),
    "eigenvalues": ("guide/lapack", "guide/linalg"),
    "cholesky": ("guide/lapack", "guide/linalg"),
    "random numbers": ("guide/curand",),
    "all-reduce": ("guide/nccl",),
    "batch": ("guide/blas",),
    "multi gpu": ("guide/devices", "help/questions"),
    "choose device": ("guide/devices", "help/questions"),
    "multiple gpus": ("guide/devices",),
    "pandas": ("help/questions",),
    "sparse": ("guide/sparse",),
    "fft": ("guide/fft",),
    "einsum": ("help/what-is-not-here",),
    "elementwise": ("help/what-is-not-here",),
    "speed": ("guide/performance",),
    "slow": ("guide/performance", "guide/tracing", "help/questions"),
    "benchmark": ("guide/performance",),
    "out of memory": ("guide/memory", "help/questions"),
    "read-only": ("help/questions", "guide/contents"),
    "assignment destination is read-only": ("help/questions",),
    "jupyter": ("guide/notebooks", "help/questions"),
    "notebook magic": ("guide/notebooks",),
    "joblib": ("guide/threads",),
    "ctypes": ("guide/cffi",),
    "rank-deficient": ("guide/lapack",),
    "install": ("start",),
    "numpy": ("coming-from/numpy",),
    "fortran": ("guide/embedding",),
    "rocm": ("guide/amd",),
    "convolution": ("guide/cudnn",),
    "write a kernel": ("guide/kernels",),
    "profiling": ("guide/tracing",),
    "cuda graphs": ("guide/graphs", "help/questions"),
    "record and replay": ("guide/recordings",),
    "wrong result": ("guide/recordings", "help/questions"),
    "kernel in python": ("guide/python-kernels", "notebooks/python_kernel"),
    "numba": ("guide/python-kernels", "help/questions"),
    "argmax": ("help/what-is-not-here", "help/questions"),
    "determinant": ("guide/linalg",),
    "unmodified script": ("guide/scripts",),
    "fourier transform": ("guide/fft", "guide/cufft"),
    "fft convolution": ("guide/fft",),
    "scipy.sparse": ("guide/sparse",),
    "spmv": ("guide/sparse",),
    "sparse solve": ("guide/sparse", "reference/python/sparse"),
    "conjugate gradients": ("gallery/poisson_cg", "gallery/cg_on_device", "guide/sparse"),
    "mpi": ("guide/many",),
    "torchrun": ("guide/many",),
    "communicator": ("guide/many",),
    "nccl": ("guide/nccl",),
    "capture": ("guide/graphs",),
    "bug report": ("guide/recordings",),
    "pca": ("gallery/principal_components",),
    "batched matrices": ("guide/blas", "reference/python/blas-batches"),
    "larger than memory": ("guide/memory",),
    "multiprocessing": ("guide/threads",),
    "command line": ("guide/command", "reference/command-line"),
    "multiply two matrices": ("guide/blas",),
    "many small matrices": ("guide/blas",),
    "dot product": ("guide/blas",),
    "inverse of a matrix": ("guide/linalg",),
    "qr decomposition": ("guide/linalg",),
    "condition number": ("guide/lapack",),
    "pseudo inverse": ("help/what-is-not-here",),
    "power method": ("gallery/power_iteration",),
    "principal component analysis": ("gallery/principal_components",),
    "krylov solver": ("gallery/poisson_cg",),
    "monte carlo": ("guide/curand",),
    "saxpy": ("guide/kernels",),
    "gpu memory limit": ("guide/memory",),
    "pinned memory": ("guide/memory",),
    "unified memory": ("guide/transfers",),
    "keep matrix on gpu": ("guide/residency",),
    "loop is slow": ("guide/chains", "help/questions"),
    "what got copied": ("guide/tracing",),
    "warm up": ("guide/performance",),
    "float16": ("help/questions",),
    "complex numbers": ("help/questions",),
    "fortran order": ("guide/layouts",),
    "no gpu": ("guide/host",),
    "unit test": ("guide/testing",),
    "async": ("guide/streams", "guide/threads"),
    "distributed": ("guide/many",),
    "torch tensor": ("guide/streams",),
    "colab": ("guide/notebooks",),
    "segmentation fault": ("guide/errors", "help/ten-mistakes"),
    "how to cite": ("licence",),
    "out of core": ("guide/memory", "gallery/out_of_core"),
    "oom": ("guide/memory",),
    "chunk": ("guide/memory",),
    "does not fit": ("guide/memory",),
    "memmap": ("guide/memory", "gallery/out_of_core"),
    "nbclient": ("guide/notebooks",),
    "nbconvert": ("guide/notebooks",),
    "papermill": ("guide/notebooks",),
    "headless": ("guide/notebooks",),
    "mean": ("coming-from/numpy", "help/questions", "help/what-is-not-here"),
    "exp": ("coming-from/numpy", "help/questions", "guide/python-kernels"),
    "readonly": ("help/questions",),
    "simulator": ("guide/testing",),
    "overdetermined": ("guide/lapack",),
    "convergence": ("guide/chains",),
    "conjugate gradient": ("guide/chains", "gallery/poisson_cg", "gallery/cg_on_device"),
    "raw kernel": ("guide/kernels",),
    "rawkernel": ("guide/kernels",),
    "nvcc": ("guide/kernels",),
    "no nvcc": ("guide/kernels",),
    "cuda c": ("guide/kernels",),
    "np.sum": ("coming-from/numpy",),
    "add arrays": ("coming-from/numpy",),
}


def main() -> int:
    node = shutil.which("node")
    if node is None:
        print("check_search: nothing was searched, as there is no Node")
        return 0
    command = [node, str(Path(__file__).with_name("search.js")), sys.argv[1], *QUERIES]
    shown = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    faults = 0
    for query, pages in QUERIES.items():
        first = shown[query][:FIRST]
        if not set(pages) & set(first):
            faults += 1
            print(f'"{query}" shows {", ".join(first) or "nothing"}, and not {" or ".join(pages)}')
    if not faults:
        print(f"{len(QUERIES)} queries, each with its page among the first {FIRST}")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
