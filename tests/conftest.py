"""Fixtures of every test: each device of this machine in turn, and a check that nothing stays lent."""

from __future__ import annotations

import gc
import random
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from types import ModuleType

import pytest

from helpers.devices import HIP, here, library_or_skip, open_or_skip
from helpers.vendor import SHORT
from offload_args import cblas, cublas, rocblas, testing

DEVICES = here("host", "sim:0", "cuda:0", HIP)
ABSENT = {"cuda:0", HIP} - {*DEVICES}
INSTANCES = 4  # the instances of a test in the default run
SAMPLED = 2  # the instances of a test on each device with --sample
# The files of few long tests begin first, and then the files of most tests: so all processes end at about one time.
LONG = ("test_recipes", "test_numpy_suite", "test_scipy_suite", "test_small_libraries", "test_dask", "test_large")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --later, for a run that leaves no test to the slow run, and --sample, for a short run."""
    parser.addoption("--later", action="store_true", help="run what the default run leaves to the slow one, too")
    parser.addoption("--sample", action="store_true", help=f"run {SAMPLED} instances of each test on each device")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark as slow the instances of a test that its marker `later` leaves to the slow run, except exhaustive ones."""
    if item.get_closest_marker("exhaustive"):
        item.own_markers[:] = [marker for marker in item.own_markers if marker.name != "slow"]
        return
    marker = item.get_closest_marker("later")
    if marker is None or item.config.getoption("later"):
        return
    names = {item.name.partition("[")[2][:-1]}
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        names |= {*item.callspec.id.split("-"), *map(str, item.callspec.params.values())}
    kept = marker.kwargs.get("but", ())
    stays = names.intersection([kept] if isinstance(kept, str) else kept)
    if names.intersection(marker.args) if marker.args else not stays:
        item.add_marker("slow")


def pytest_report_header() -> str:
    """Return a line with the names of the devices whose tests are collected."""
    return f"devices: {', '.join(DEVICES)}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave thousands of tests out of the search for garbage, while they are made and afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Leave no test to the slow run if the arguments name files or tests.

    After the first injected failure of an event or of pinned memory, the core warns once in its process, at the end of
    any later region, perhaps of another test. This warning is no error.
    """
    config.addinivalue_line("filterwarnings", "ignore:sim.*SIM_ERROR_INJECTED.*copies take the driver's slower way")
    if config.args_source is pytest.Config.ArgsSource.ARGS or config.option.keyword:
        config.option.later = True


def missing_devices(item: pytest.Function) -> set[object]:
    """Return the devices of an instance that this machine lacks."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return ABSENT & {params.get(name) for name in ("device", "cuda", "hip", "gpu")}


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Function]
) -> Generator[None, object, object]:
    """Choose instances of tests: some for the default run, and for each missing device one that is skipped."""
    if not config.option.later:
        leave_most_to_the_slow_run(items)
    yield  # to the options -m and -k
    repeats = {item for item in items if is_short_form(item) and item.get_closest_marker("slow")}
    items[:] = [item for item in items if item not in repeats]
    config.hook.pytest_deselected(items=[*repeats])
    messages, kept, again = set(), [], []
    for item in items:
        absent = missing_devices(item)
        test = (item.path, item.originalname)
        (again if absent and test in messages else kept).append(item)
        if absent:
            messages.add(test)
    counts = Counter(item.path for item in kept)
    items[:] = sorted(kept, key=lambda item: (item.path.stem not in LONG, -counts[item.path]))
    config.hook.pytest_deselected(items=again)
    if config.option.sample:
        rest = {*left_out(items, SAMPLED, by_device=True)}
        items[:] = [item for item in items if item not in rest]
        config.hook.pytest_deselected(items=[*rest])
    return None


def is_short_form(item: pytest.Function) -> bool:
    """Return whether an instance of a test makes only a part of the calls of a slow instance."""
    return hasattr(item, "callspec") and item.callspec.params.get("share") == SHORT


def leave_most_to_the_slow_run(items: list[pytest.Function]) -> None:
    """Mark as slow all but some instances of each test.

    The choice is always the same, and has some instances of each parameter.
    """
    here = [
        item
        for item in items
        if not (item.get_closest_marker("slow") or item.get_closest_marker("exhaustive") or missing_devices(item))
    ]
    for item in left_out(here, INSTANCES):
        item.add_marker("slow")


def device_of(item: pytest.Function) -> str:
    """Return the devices that an instance of a test names."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return "".join(str(params.get(name, "")) for name in ("device", "cuda", "hip", "gpu"))


def left_out(items: list[pytest.Function], count: int, by_device: bool = False) -> list[pytest.Function]:
    """Return all but `count` instances of each test, or of each test on each device. The choice is always the same."""
    instances: dict[str, list[pytest.Function]] = {}
    for item in items:
        test = item.nodeid.partition("[")[0]
        instances.setdefault(test + device_of(item) if by_device else test, []).append(item)
    rest = []
    for test, group in instances.items():
        if len(group) > count:
            turns: Counter[str] = Counter()
            ranked = []
            for item in random.Random(test).sample(group, len(group)):
                ranked.append((turns[device_of(item)], len(ranked), item))
                turns[device_of(item)] += 1
            rest += [item for _, _, item in sorted(ranked, key=lambda entry: entry[:2])[count:]]
    return rest


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device of this machine."""
    return open_or_skip(request.param)


@pytest.fixture(params=["cuda:0"])
def cuda(request: pytest.FixtureRequest) -> str:
    """The name of the first GPU, which is also in the test's id."""
    return open_or_skip(request.param)


@pytest.fixture
def gpu(cuda: str, request: pytest.FixtureRequest) -> str:
    """The GPU of a test whose module names the needed vendor library in LIBRARY."""
    library_or_skip(request.module.LIBRARY, cuda)
    return cuda


@pytest.fixture(params=[HIP])
def hip(request: pytest.FixtureRequest) -> str:
    """The name of an AMD device, which is also in the test's id."""
    return open_or_skip(request.param)


@pytest.fixture
def library(device: str) -> ModuleType:
    """The library whose functions run on the device."""
    return {"cuda": cublas, "hip": rocblas}.get(device.partition(":")[0], cblas)


@pytest.fixture(scope="module", autouse=True)
def collections_are_short() -> None:
    """Exclude older objects from garbage collections, because many tests collect, some a hundred times."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_arrives() -> Iterator[None]:
    """Handle SIGINT here and in children, because a program that is started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def kernels_are_cached_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep compiled kernels of the tests out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFLOAD_ARGS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def nothing_stays_present() -> Iterator[None]:
    yield
    testing.no_mappings_left()
