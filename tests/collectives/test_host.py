"""Which ranks share a host: those that reach rank 0's memory and go by its name, on its network."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from collectives import host


class Meeting:
    """Two ranks' object channel, as threads of one process."""

    def __init__(self, rank: int, barrier: threading.Barrier, said: dict[int, list[Any]]) -> None:
        self.rank, self.barrier, self.said, self.calls = rank, barrier, said, 0

    def all_gather(self, value: Any, timeout_s: float) -> list[Any]:
        self.calls += 1
        self.said.setdefault(self.calls, [None, None])[self.rank] = value
        self.barrier.wait(timeout_s)
        return self.said[self.calls]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="shares memory through memfd")
@pytest.mark.parametrize(("names", "is_shared"), [(("a", "a"), True), (("a", "b"), False)])
def test_ranks_that_go_by_other_names_are_on_other_hosts(
    names: tuple[str, str], is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_name", lambda: (names[int(threading.current_thread().name)], 1))
    barrier, said, found = threading.Barrier(2), {0: [None, None]}, [None, None]

    def rank(number: int) -> None:
        found[number] = host.open_host(Meeting(number, barrier, said), 4096, 60.0)  # type: ignore[arg-type, call-overload]

    threads = [threading.Thread(target=rank, args=(r,), name=str(r), daemon=True) for r in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [one is not None for one in found] == [is_shared, is_shared]
