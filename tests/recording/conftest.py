"""The processes that have the recording doubles loaded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recording.workers import Workers


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Workers by variant, such as workers["cublas"]."""
    workers = Workers(tmp_path_factory.mktemp("recording"))
    yield workers
    for worker in workers.values():
        worker.stop()
