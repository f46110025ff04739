"""Options and fixtures every test may use: golden files, and a clean slate of warnings, knobs and trace.

How tests are shared among processes is in sharing.py and workers.py.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile

# before NumPy is imported: processes that share the cores, a thread each
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# C++ in a third of the time. The fixtures below optimise it for the tests of what generates it
os.environ.setdefault("DISTCOMPILE_CXX_FLAGS", "-O0")
if os.environ.pop("PYTHONDONTWRITEBYTECODE", "") and "PYTHONPYCACHEPREFIX" not in os.environ:
    # not beside the sources then; but hundreds of processes that each compile all they import take minutes
    os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="distcompile-bytecode-")
    atexit.register(shutil.rmtree, os.environ["PYTHONPYCACHEPREFIX"], ignore_errors=True)

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("hypothesis") is not None:  # the first draw reads the constants of all our sources: it may take seconds
    from hypothesis import HealthCheck, settings

    settings.register_profile("distcompile", suppress_health_check=[HealthCheck.too_slow], deadline=None)
    settings.load_profile("distcompile")

from compiler_core import cuda, log, steps
from compiler_core.config import config
from compiler_core.eager.native import kernels
from compiler_core.ops.casting import casting
from compiler_core.ops.random import mersenne
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.making import random
from distcompile import backends
from tests import sharing, workers

GOLDEN = Path(__file__).parent / "golden"
# loops marked as lanes are vectorised, as with -O3; without -ftree-pre into six times the code, which takes longer
OPTIMISED = "-O1 -ftree-pre"


def pytest_addoption(parser: pytest.Parser) -> None:
    processes = parser.getgroup("sharing")  # small letters are pytest's, but for this one, which people know from xdist
    processes._addoption("-n", dest="processes", default="auto", help="processes; else one a core if all tests are run")
    parser.addoption("--update-golden", action="store_true", help="write what tests produce into tests/golden")
    parser.addoption("--fuzz", type=int, default=0, help="random Python programs; else 50, with --long 250")
    parser.addoption("--long", action="store_true", help="run all: tests marked `long` too, and all parameters")
    parser.addoption("--thin", action="store_true", help="of many parameters every fifth, as the whole suite does")
    parser.addoption("--turn", default="1/1", metavar="K/N", help="with --long: of what it adds the K-th of N parts")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """The whole suite in several processes; else pytest's own loop."""
    processes = sharing.processes(session.config)
    if processes < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    workers.run(session, sharing.files(session.items), processes)
    return True


@pytest.hookimpl(trylast=True)  # after -k and -m, which choose first
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put them in order, and leave out what is for --long, or not its turn: see sharing.py."""
    if addressed := [item.nodeid for item in items if " at 0x" in item.nodeid]:  # workers must agree on all names
        raise pytest.UsageError(f"tests whose names differ from run to run, give them ids: {addressed[:5]}")
    items.sort(key=lambda item: sharing.rank_in_order(item.path))
    is_thin = config.getoption("thin") or (sharing.is_whole(config) and not config.getoption("fuzz"))
    chosen = sharing.choose(items, is_thin=is_thin, is_long=config.getoption("long"), turn=config.getoption("turn"))
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """The kernels that eager code calls are optimised, and built once in all: before a file of tests asks for them."""
    sharing.show_progress(session.config)
    with compiling_with(OPTIMISED):
        kernels()
        assert mersenne.steps().bernoulli is not None  # both libraries
    gc.disable()


def pytest_collection_finish() -> None:
    """What is collected stays: the garbage collector need not go through a million of its objects again and again."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """At its end Python lets go of everything: Triton complains of what it could not."""
    gc.unfreeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of a GPU where there is none.

    Asked while tests are collected, it would start CUDA before the processes fork that are to use it.
    """
    if item.get_closest_marker("gpu") and (why_not := cuda.why_not()):
        pytest.skip(f"no CUDA device: {why_not}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Nor through what a file's tests have left behind: tests that collect took ten times as long at the end."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): `text` must equal the file tests/golden/<name>; with --update-golden, becomes it."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path.name} is missing; write it with --update-golden and read it before committing"
        assert text == path.read_text(), f"{name} changed; if that is meant, run with --update-golden and read the diff"

    return compare


@pytest.fixture(autouse=True)
def clean_slate() -> Iterator[None]:
    """Every test starts seeded, without given warnings, and with a new process's knobs; none may leave a trace."""
    log.forget_warnings()
    log.set_rank(0)  # ranks that are threads leave the last one's
    random.manual_seed(0)
    before, switches = dict(config.values), dict(vars(backends.cudnn))
    precision, regions = backends.get_float32_matmul_precision(), casting.depth
    yield
    casting.depth = regions  # of autocast
    config.values = before
    vars(backends.cudnn).update(switches)
    backends.set_float32_matmul_precision(precision)
    assert current_trace() is None, "a trace was left running"


@pytest.fixture
def in_full(request: pytest.FixtureRequest) -> bool:
    """Whether this test takes all its samples, not a few."""
    return request.node.stash.get(sharing.IN_FULL, False)


@pytest.fixture
def counter_draws() -> Iterator[None]:
    """Eager code draws the bits that compiled code draws; generators that are made are counter-based."""
    with config.patch(draws="counter"), random.counter_draws():
        yield


@contextmanager
def compiling_with(flags: str) -> Iterator[None]:
    """In this process, and those it starts."""
    with pytest.MonkeyPatch.context() as patch, config.patch(cxx_flags=flags):
        patch.setenv("DISTCOMPILE_CXX_FLAGS", flags)
        yield


@pytest.fixture(scope="module")
def optimised() -> Iterator[None]:
    """These tests compile loops to vector instructions: a loop that is wrongly marked as lanes shows."""
    with compiling_with(OPTIMISED):
        yield


@pytest.fixture(scope="module")
def compiled_as_by_users(pytestconfig: pytest.Config) -> Iterator[None]:
    """As `optimised`; with --long these tests compile with -O3, as users do."""
    with compiling_with("" if pytestconfig.getoption("--long") else OPTIMISED):
        yield


@pytest.fixture
def no_compile_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """`compile_times()` begins anew: it forgets the oldest, so that a difference of two counts would not do."""
    monkeypatch.setattr(steps, "_times", deque(maxlen=steps.LONGEST))
