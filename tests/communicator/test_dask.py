"""Regions in the tasks of Dask's workers, and tasks that are the ranks of a communicator.

Chunks that were moved between workers are read-only, and at any address.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers.processes import output_of, python

PROGRAM = """
import sys
import warnings

import dask.array
import numpy as np
from distributed import Client, LocalCluster

from offload_args import In, Out, blas, offload_args


def twice(chunk, unaligned=False):
    if unaligned:
        buffer = np.empty(chunk.nbytes + 1, np.uint8)
        buffer[1:] = np.frombuffer(chunk.tobytes(), np.uint8)
        chunk = buffer[1:].view(chunk.dtype).reshape(chunk.shape)
        chunk.flags.writeable = False
        assert not chunk.flags.aligned
    result = np.empty(chunk.shape, chunk.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unaligned chunk is packed
        with offload_args(In(np.eye(chunk.shape[1])), chunk, Out(result), device="host") as (dI, dchunk, dresult):
            blas.gemm(2.0, dchunk, dI, 0.0, dresult)
    return result


def main():
    dask.config.set({"distributed.comm.timeouts.connect": "600s", "distributed.comm.timeouts.tcp": "600s"})
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=600)
        x = np.random.default_rng(1).standard_normal((64, 8))
        for unaligned in (False, True):
            chunks = dask.array.from_array(x, chunks=(16, 8)).map_blocks(twice, unaligned, dtype=x.dtype)
            assert np.array_equal(client.compute(chunks).result(timeout=600), 2 * x)
        large = np.random.default_rng(2).standard_normal((50_000, 4))
        first, second = client.scheduler_info()["workers"]
        there = client.scatter(large, workers=[first])
        moved = client.submit(twice, there, workers=[second], pure=False)
        again = client.submit(twice, moved, workers=[first], pure=False)
        assert np.array_equal(again.result(timeout=600), 4 * large)
    print("right")


if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_chunks_of_two_workers(tmp_path: Path) -> None:
    if python("import dask.array, distributed").returncode:
        pytest.skip("device unavailable: no distributed")
    (tmp_path / "program.py").write_text(PROGRAM)
    assert output_of(sys.executable, "program.py", folder=tmp_path, timeout=900).splitlines()[-1] == "right"


@pytest.mark.slow
def test_the_programs_of_examples_many_on_two_workers() -> None:
    if python("import distributed").returncode:
        pytest.skip("device unavailable: no distributed")
    folder = Path(__file__).parents[2] / "examples" / "many"
    names = sorted(path.stem for path in folder.glob("*.py") if path.stem != "on_dask")
    ran = output_of(sys.executable, "on_dask.py", *names, folder=folder, timeout=900, OPENBLAS_NUM_THREADS="1")
    lines = ran.splitlines()
    assert [line.partition(":")[0] for line in lines] == [name for name in names for _ in range(2)], lines
