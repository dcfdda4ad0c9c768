"""Fixtures of every test: each device of this machine in turn, and a check that nothing stays lent."""

from __future__ import annotations

import gc
import random
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from operator import attrgetter
from types import ModuleType
from typing import Any

import pytest

from helpers.devices import HIP, here, library_or_skip, open_or_skip
from helpers.vendor import SHORT
from offload_args import cblas, cublas, rocblas, testing

DEVICES = here("host", "sim:0", "cuda:0", HIP)
ABSENT = {"cuda:0", HIP} - {*DEVICES}
INSTANCES = 2  # the instances of a test in the default run
SAMPLED = 2  # the instances of a test on each device with --sample
RUNS = {"not slow and not exhaustive": "default", "slow": "slow"}  # {-m: the run that takes these instances}
# The files of few long tests begin first, and then the files of most tests: so all processes end at about one time.
LONG = (
    "test_recipes",
    "test_numpy_suite",
    "test_scipy_suite",
    "test_small_libraries",
    "test_dask",
    "test_large",
    "test_python_random",
    "test_python_phases",
    "test_raja",
)

# The tests of such a folder share child processes, so one process runs all of them.
TOGETHER = ("tests/recording/",)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --later, for a run that leaves no test to the slow run, and --sample, for a short run."""
    parser.addoption("--later", action="store_true", help="run what the default run leaves to the slow one, too")
    parser.addoption("--sample", action="store_true", help=f"run {SAMPLED} instances of each test on each device")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Take the marker `slow` from exhaustive tests, because -m slow would run them; mark tests without instances."""
    marker = item.get_closest_marker("later")
    if item.get_closest_marker("exhaustive"):
        item.own_markers[:] = [marker for marker in item.own_markers if marker.name != "slow"]
    elif marker and not item.config.getoption("later") and not params_of(item) and is_later(marker, "", {}):
        item.add_marker("slow")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    """Mark as slow the instances of a test that the default run leaves to the slow run, and drop those of other runs.

    For missing devices, one instance is kept, which is skipped. Dropping instances here takes a third of the time of
    dropping finished items, of which there are some 30,000.
    """
    yield
    config, calls = metafunc.config, metafunc._calls
    outer = [*metafunc.definition.iter_markers()]
    usual = []
    for call in calls:
        markers = {marker.name: marker for marker in reversed([*call.marks, *outer])}
        if "exhaustive" in markers or "slow" in markers:
            continue
        if "later" in markers and not config.option.later and is_later(markers["later"], call.id, call.params):
            call.marks.append(pytest.mark.slow.mark)
        elif not missing_devices(call.params):
            usual.append(call)
    if not config.option.later:
        for call in left_out(metafunc.definition.nodeid, usual, INSTANCES):
            call.marks.append(pytest.mark.slow.mark)
    if config.args_source is not pytest.Config.ArgsSource.ARGS and config.option.markexpr in RUNS:
        run = RUNS[config.option.markexpr]
        names = [{marker.name for marker in [*call.marks, *outer]} for call in calls]
        runs = ["exhaustive" if "exhaustive" in each else "slow" if "slow" in each else "default" for each in names]
        # pytest makes an item of a test without an instance; -m then leaves it out.
        kept = [call for call, own in zip(calls, runs, strict=True) if own == run]
        again = {id(call) for call in [call for call in kept if missing_devices(call.params)][1:]}
        calls[:] = [call for call in kept if id(call) not in again] or calls[:1]


def is_later(marker: pytest.Mark, identity: str, params: dict[str, object]) -> bool:
    """Return whether the marker `later` leaves the instance of this id and these parameters to the slow run."""
    names = {identity, *identity.split("-"), *map(str, params.values())}
    kept = marker.kwargs.get("but", ())
    stays = names.intersection([kept] if isinstance(kept, str) else kept)
    return bool(names.intersection(marker.args)) if marker.args else not stays


def pytest_report_header() -> str:
    """Return a line with the names of the devices whose tests are collected."""
    return f"devices: {', '.join(DEVICES)}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process whole files, and one of them all files of TOGETHER, if the command says --dist loadfile."""
    from xdist.scheduler import LoadFileScheduling

    class WholeFiles(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))

    return WholeFiles(config, log) if config.option.dist == "loadfile" else None


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


def params_of(item: pytest.Function) -> dict[str, object]:
    """Return the parameters of an instance."""
    return item.callspec.params if hasattr(item, "callspec") else {}


def missing_devices(params: dict[str, object]) -> set[object]:
    """Return the devices of an instance that this machine lacks."""
    return ABSENT & {params.get(name) for name in ("device", "cuda", "hip", "gpu")}


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Function]
) -> Generator[None, object, object]:
    """Choose instances of tests: for a missing device one that is skipped, and with --sample two on each device."""
    yield  # to the options -m and -k
    repeats = {item for item in items if is_short_form(item) and item.get_closest_marker("slow")}
    items[:] = [item for item in items if item not in repeats]
    config.hook.pytest_deselected(items=[*repeats])
    messages, kept, again = set(), [], []
    for item in items:
        absent = missing_devices(params_of(item))
        test = (item.path, item.originalname)
        (again if absent and test in messages else kept).append(item)
        if absent:
            messages.add(test)
    counts = Counter(item.path for item in kept)
    items[:] = sorted(kept, key=lambda item: (item.path.stem not in LONG, -counts[item.path]))
    config.hook.pytest_deselected(items=again)
    if config.option.sample:
        instances: dict[str, list[pytest.Function]] = {}
        for item in items:
            instances.setdefault(item.nodeid.partition("[")[0] + device_of(params_of(item)), []).append(item)
        rest = {item for test, group in instances.items() for item in left_out(test, group, SAMPLED, params_of)}
        items[:] = [item for item in items if item not in rest]
        config.hook.pytest_deselected(items=[*rest])
    return None


def is_short_form(item: pytest.Function) -> bool:
    """Return whether an instance of a test makes only a part of the calls of a slow instance."""
    return params_of(item).get("share") == SHORT


def device_of(params: dict[str, object]) -> str:
    """Return the devices that an instance of a test names."""
    return "".join(str(params.get(name, "")) for name in ("device", "cuda", "hip", "gpu"))


def left_out(
    test: str, group: list[Any], count: int, params: Callable[[Any], dict[str, object]] = attrgetter("params")
) -> list[Any]:
    """Return all but `count` instances of a test, as many of each device. The choice is always the same."""
    turns: Counter[str] = Counter()
    ranked = []
    for instance in random.Random(test).sample(group, len(group)) if len(group) > count else []:
        device = device_of(params(instance))
        ranked.append((turns[device], len(ranked), instance))
        turns[device] += 1
    return [instance for _, _, instance in sorted(ranked, key=lambda entry: entry[:2])[count:]]


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
