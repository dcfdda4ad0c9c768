"""The worker processes, which load the recording doubles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recording.workers import QUICK, Turns, Workers


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    """In CI, leave out the short form of a test, because the long form makes the same turns and more."""
    kept, left_out = [], []
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        turns = params.get("turns")
        repeats = isinstance(turns, Turns) and turns.is_short and params.get("variant", QUICK[0]) not in QUICK
        (left_out if repeats else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def workers(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Workers by variant, such as workers["cublas"]. All processes of pytest-xdist use the same compiled doubles."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(pytestconfig, "workerinput") else base) / "recording"
    folder.mkdir(exist_ok=True)
    workers = Workers(folder)
    yield workers
    for worker in workers.values():
        worker.stop()
