"""The native engine's Python side, without MPI: which buffers it lets go of, and when."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

from collectives.native_engine import NativeEngine
from collectives.native_work import DONE


class FakeView:
    """A task's view; another thread settles just as `error` is first read, as it may."""

    def __init__(self, engine: NativeEngine, state: int) -> None:
        self.engine, self.state, self.is_read = engine, state, False

    @property
    def error(self) -> int:
        if not self.is_read:
            self.is_read = True
            thread = threading.Thread(target=self.engine.settle)
            thread.start()
            thread.join()
        return 0


def fake_work(engine: NativeEngine, state: int) -> Any:
    return SimpleNamespace(view=FakeView(engine, state), task="its buffers", failed_while_mpi_moved=False)


def test_two_threads_that_settle_keep_the_buffers_of_what_is_under_way() -> None:
    engine = object.__new__(NativeEngine)
    engine.settling = threading.Lock()
    done, under_way = fake_work(engine, DONE), fake_work(engine, DONE - 1)
    engine.pending = deque([done, under_way])
    engine.settle()
    assert done.task is None
    assert under_way.task == "its buffers"
    assert list(engine.pending) == [under_way]
