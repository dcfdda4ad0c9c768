"""Run a program of this folder on two workers of Dask, each of which is a rank.

python on_dask.py power_iteration
python on_dask.py conjugate_gradients product cholesky

With a GPU for each worker, start workers that see one GPU each (CUDA_VISIBLE_DEVICES), and leave out device="host".
"""

import importlib
import sys
import uuid

from distributed import Client, LocalCluster, Variable

from offload_args import Communicator


def on_rank(name: str, job: str, rank: int, size: int) -> str:
    """Check the program as one rank of a job; Dask's variables carry the bytes by which the ranks meet."""

    def exchange(data: bytes) -> list[bytes]:
        Variable(f"{job} {rank}").set(data.hex())
        return [bytes.fromhex(Variable(f"{job} {other}").get(timeout=120)) for other in range(size)]

    program = importlib.import_module(name)
    with Communicator.join(rank, size, exchange, device="host", timeout=120) as communicator:
        return str(program.check(communicator))


def main(names: list[str]) -> None:
    """Start two workers, and run the programs on them."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=120)
        workers = sorted(client.scheduler_info()["workers"])
        for name in names:
            job = f"{name} {uuid.uuid4()}"
            tasks = [
                client.submit(on_rank, name, job, rank, len(workers), workers=[worker], pure=False)
                for rank, worker in enumerate(workers)
            ]
            print(*(f"{name}: {line}" for line in client.gather(tasks)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:] or ["power_iteration"])
