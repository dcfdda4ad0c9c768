"""Measure arrays lent to two devices of one machine: the sum of their buses, and copies between the devices.

    python benchmarks/two_devices.py [--devices NAME NAME] [--rounds N] [--bytes N]

It prints the GB/s of an array that goes up and comes down in a region, on one device, and on both at the same time,
with a thread each, and the ratio. Then it prints, by size, the time until the second device has an array, from the
first device, which has the array in an open region, and from the host.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from offload_args import Device, In, offload_args


def _through(device: str, array: np.ndarray, rounds: int) -> None:
    """Send an array up and down several times.

    Taking the address makes it come down, because the address might be written to.
    """
    for _ in range(rounds):
        with offload_args(array, device=device) as (d,):
            _ = d.address


def _seconds(work: Sequence[Callable[[], None]]) -> float:
    """Return the seconds that some functions take, each on a separate thread."""
    threads = [threading.Thread(target=function) for function in work]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def buses(devices: Sequence[str], nbytes: int, rounds: int) -> None:
    """Print the rates of one device and of all devices."""
    arrays = [np.full(nbytes // 8, float(i)) for i in range(len(devices))]
    rates = []
    for count in (len(devices), 1, len(devices), 1, len(devices)):  # the first measurement is not counted
        work = [lambda i=i: _through(devices[i], arrays[i], rounds) for i in range(count)]
        rates.append((count, 2 * nbytes * rounds * count / _seconds(work) * 1e-9))
    alone = statistics.mean(rate for count, rate in rates[1:] if count == 1)
    both = statistics.mean(rate for count, rate in rates[1:] if count > 1)
    print(
        f"{nbytes >> 20} MiB up and down: {alone:.1f} GB/s on one, {both:.1f} on {len(devices)}: "
        f"{both / alone:.2f} times"
    )


def _microseconds(device: str, array: np.ndarray, rounds: int) -> float:
    """Return the time from entering a region until the device has the array, which goes up at its first use."""
    times = []
    for _ in range(rounds):
        with offload_args(In(array), device=device) as (d,):
            start = time.perf_counter()
            _ = d.address
            Device(device).synchronize()
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def peers(devices: Sequence[str], most: int) -> None:
    """Print, by size, the time of an array's way to the second device."""
    first, second = devices[:2]
    print("bytes: us from the host, from the other device, GB/s of either")
    nbytes = 16 << 10
    while nbytes <= most:
        array = np.ones(nbytes // 8)
        rounds = 5 if nbytes > 64 << 20 else 30
        host = _microseconds(second, array, rounds)
        with offload_args(In(array), device=first) as (d,):
            _ = d.address
            before = Device(second).counters.copies_peer
            peer = _microseconds(second, array, rounds)
            direct = Device(second).counters.copies_peer > before
        name = "" if direct else "  (went up from the host)"
        print(f"{nbytes:11} {host:9.1f} {peer:9.1f} {nbytes / host * 1e-3:6.1f} {nbytes / peer * 1e-3:6.1f}{name}")
        nbytes *= 2 if nbytes < 4 << 20 else 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", nargs="+", default=["cuda:0", "cuda:1"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    arguments = parser.parse_args()
    buses(arguments.devices, arguments.bytes, arguments.rounds)
    peers(arguments.devices, arguments.bytes)


if __name__ == "__main__":
    main()
