"""The pool of threads: every iteration once, whoever else runs; forks, nesting, sizes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from compiler_core.config import config
from compiler_core.runtime import pool

pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler")
ROOT = Path(__file__).parents[3]
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    pool.resize(3)
    yield
    pool.resize(config.num_threads)


def run(n: int, least: int, body: Callable[[int, int], None], shares: int = 4) -> None:
    call = BODY(lambda _, start, stop: body(start, stop))
    pool._pool().dc_pool_run(ctypes.c_int64(n), ctypes.c_int64(least), ctypes.c_int64(shares), call, None)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 1000, 1001])
@pytest.mark.parametrize("least", [1, 3, 64])
@pytest.mark.parametrize("shares", [1, 4])
def test_every_iteration_runs_once_in_parts_of_at_least_least(n: int, least: int, shares: int) -> None:
    counts, parts = np.zeros(n, int), []

    def body(start: int, stop: int) -> None:
        parts.append((start, stop))
        counts[start:stop] += 1

    run(n, least, body, shares)
    assert (counts == 1).all()
    assert len(parts) == 1 or all(stop - start >= least and start % least == 0 for start, stop in parts)


def test_other_threads_take_part() -> None:
    who: set[int] = set()
    all_are_here = threading.Event()

    def body(start: int, stop: int) -> None:
        who.add(threading.get_native_id())
        if len(who) == 3:
            all_are_here.set()
        all_are_here.wait(5)

    run(12, 1, body)
    assert len(who) == 3


def test_one_thread_is_the_callers() -> None:
    pool.resize(1)
    who = set()
    run(100, 1, lambda start, stop: who.add((threading.get_native_id(), start, stop)))
    assert who == {(threading.get_native_id(), 0, 100)}


def test_a_loop_inside_of_a_loop_runs_where_it_stands() -> None:
    inner: list[tuple[int, int, int]] = []

    def body(start: int, stop: int) -> None:
        run(50, 1, lambda a, b: inner.append((start, a, b)))

    run(12, 1, body)
    assert inner
    assert all((a, b) == (0, 50) for _, a, b in inner)


def test_threads_that_call_at_once_each_get_their_own_loop() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for n in range(200):
            sizes: list[int] = []
            run(n, 1, lambda start, stop, sizes=sizes: sizes.append(stop - start))  # type: ignore[misc]
            if sum(sizes) != n:
                wrong.append(number)

    callers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


FORK = """
import ctypes, os, time
from compiler_core.runtime import pool
pool.resize(2)
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
call = BODY(lambda _, start, stop: None)
one = ctypes.c_int64
pool._pool().dc_pool_run(one(8), one(1), one(4), call, None)
child = os.fork()
if child == 0:
    pool._pool().dc_pool_run(one(8), one(1), one(4), call, None)  # the parent's threads are not here
    pool.resize(2)
    pool._pool().dc_pool_run(one(8), one(1), one(4), call, None)
    os._exit(7)
for _ in range(400):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        raise SystemExit(os.waitstatus_to_exitcode(status))
    time.sleep(0.05)
os.kill(child, 9)
"""


FORK_BESIDE_A_JOB = """
import ctypes, os, threading, time
from compiler_core.runtime import pool
pool.resize(2)
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
parent, child, begun = os.getpid(), 0, threading.Event()

def body(_, start, stop):
    if os.getpid() != parent:
        os._exit(3)  # the child computes what is its parent's
    begun.set()
    time.sleep(0.3)

call, one = BODY(body), ctypes.c_int64
job = threading.Thread(target=lambda: pool._pool().dc_pool_run(one(8), one(1), one(4), call, None))
job.start()
begun.wait()
child = os.fork()
if child == 0:
    pool.resize(2)
    time.sleep(1)
    os._exit(7)
job.join()
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("script", [FORK, FORK_BESIDE_A_JOB], ids=["idle", "beside a job of another thread"])
def test_a_fork_has_no_threads_and_may_ask_for_some(script: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 7, done.stderr


def test_what_is_loaded_follows_the_number_of_threads() -> None:
    import distcompile as torch

    compiled = torch.compile(lambda x: torch.softmax(x, 1).sum(0))
    x = torch.randn(600, 256)
    before = compiled(x)
    for threads in (4, 1, 2):
        torch.set_num_threads(threads)
        try:
            np.testing.assert_array_equal(compiled(x).numpy(), before.numpy())
        finally:
            torch.set_num_threads(1)
