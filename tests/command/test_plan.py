"""`python -m offload_args plan`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from offload_args import command
from offload_args.command import plan


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert command.main(["plan", *arguments, "--json"]) == 0
    actual: dict[str, Any] = json.loads(capsys.readouterr().out)
    return actual


def test_a_small_product_is_measured_as_it_is_and_not_extrapolated(
    device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results = planned(capsys, "70", "60", "50", "--dtype", "f8", "--device", device)
    (row,) = results["devices"]
    assert row["name"] == device and row["error"] == ""
    assert row["measured"] == results["numpy"]["measured"] == [70, 60, 50] and not row["extrapolated"]
    assert row["needs"] == results["product"]["nbytes"] == 8 * (70 * 50 + 50 * 60 + 70 * 60) and row["fits"]
    assert min(row[name] for name in ("product", "up", "down", "region")) > 0
    assert row["total"] == pytest.approx(row["product"] + row["up"] + row["down"] + row["region"])
    assert results["advice"][0].startswith(f"{device}: ")


@pytest.mark.slow
def test_a_large_product_is_extrapolated_from_one_whose_largest_extents_are_less(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = planned(capsys, "400000", "200000", "100", "--device", "host")
    (row,) = results["devices"]
    m, n, k = row["measured"]
    assert k == 100 and m < 20000 and n < 20000
    assert row["extrapolated"] and not row["fits"]
    assert row["up"] == pytest.approx(4 * (400000 * 100 + 200000 * 100) / row["up_rate"])
    assert "the arrays do not fit: they need 298 GiB, and " in results["advice"][0]
    assert command.main(["plan", "400000", "200000", "100", "--device", "host"]) == 0
    text = capsys.readouterr().out
    assert "C = A B: 400000 x 200000 x 100, float32, 298 GiB" in text and "\n~: extrapolated" in text


def test_the_table_has_a_line_for_numpy_and_for_each_device_of_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["plan", "8", "8", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["product", "A,", "B", "up", "C", "down", "all", "measured"]
    (host,) = (line for line in lines if line.split()[:1] == ["host"])
    assert lines[3].split()[0] == "NumPy" and host.endswith("8 x 8 x 8, copies of 512 bytes")
    assert not lines[-1].startswith("~")


@pytest.mark.parametrize("shape", [(1, 1, 1), (2**31 - 1, 1, 1), (4096, 4096, 1), (1, 2**31 - 1, 7), (2**31 - 1,) * 3])
def test_the_products_that_are_measured_grow_and_stay_small_in_memory(shape: plan.Shape) -> None:
    actual = list(plan.smaller_products(shape, 16))
    work = [m * n * k for m, n, k in actual]
    assert actual and work == sorted(work) and work[0] <= plan.LEAST_WORK
    assert all(16 * (m * k + k * n + m * n) <= plan.MOST_BYTES for m, n, k in actual)
    assert (actual[-1] == shape) == (16 * (shape[0] * shape[2] + shape[1] * sum(shape[::2])) <= plan.MOST_BYTES)


def test_the_advice_says_when_a_device_pays() -> None:
    def estimate(name: str, product: float, up: float = 0.0, free: int = 100) -> plan.Estimate:
        return plan.Estimate(name, "", needs=100, free=free, product=product, up=up)

    numpy = estimate("NumPy", 1.0)
    assert (
        plan.advice(numpy, estimate("d", 0.1, 0.4))
        == "d: a single product pays, 2 times as fast as NumPy with its copies"
    )
    assert plan.advice(numpy, estimate("d", 0.5, 2.0)).startswith("d: pays from 5 products on ")
    for slow in (0.95, 1.0, 2.0):
        words = "d: does not pay: NumPy takes as long or less, without copies"
        assert plan.advice(numpy, estimate("d", slow, 0.1)) == plan.advice(numpy, estimate("d", slow)) == words
    assert plan.advice(numpy, estimate("d", 0.1, free=99)).startswith(
        "d: the arrays do not fit: they need 100 bytes, and 99"
    )
    assert plan.advice(numpy, estimate("host", 0.1)).startswith("host: does not pay: ")  # despite noise


@pytest.mark.parametrize("arguments", [["0", "1", "1"], ["-1", "1", "1"], ["1", "1", str(2**31)], ["1", "x", "1"],
                                   ["1", "\u0661", "1"], ["1", "9" * 5000, "1"], ["1", "1.5", "1"]])  # fmt: skip
def test_a_size_that_no_matrix_has_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command.main(["plan", *arguments])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert "needs 1 to 2147483647, got " in error or "required: K" in error or "unrecognized" in error


def test_a_dtype_that_plan_does_not_know_and_a_missing_size_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["1", "1", "1", "--dtype", "f2"], "choose from"),
        (["1", "1"], "needs M, N and K, got 2"),
    ):
        with pytest.raises(SystemExit) as left:
            command.main(["plan", *arguments])
        assert left.value.code == 2 and words in capsys.readouterr().err


def test_a_device_without_memory_for_what_is_measured_is_said_and_the_others_are_planned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(place: object, dtype: np.dtype[Any]) -> float:
        raise plan.OffloadError("sim:0: out of device memory")

    monkeypatch.setattr(plan, "_measure_region", fail)
    assert command.main(["plan", "8", "8", "8", "--device", "sim:0"]) == 0
    text = capsys.readouterr().out
    assert "not measured" in text and "sim:0: sim:0: out of device memory" in text


def test_one_slow_measurement_on_a_busy_machine_is_not_what_a_product_is_extrapolated_from() -> None:
    def measure(shape: plan.Shape, dtype: np.dtype[Any]) -> float:
        work = float(np.prod(shape))
        return work * (1e-9 if work < 3e7 else 1e-7)  # the second measurement waited for other programs

    estimate = plan.Estimate("host", "", 0, 0)
    plan._grow(estimate, (20_000, 20_000, 20_000), np.dtype(np.float32), measure)
    assert estimate.extrapolated and np.prod(estimate.measured) > 3e7
    assert estimate.product == pytest.approx(8e12 * 1e-9)
