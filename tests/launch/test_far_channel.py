"""Ranks of hosts without the job's folder: they are heard over TCP, if they have the token; strangers are not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.channel import Channel, FarAddress, listen_far, local_addresses
from launch.screen.output import Screen, Writer
from launch.screen.relay import Relay
from launch.switchboard import Switchboard

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Switchboard]:
    relay = Relay(Screen(2, Writer(), False), True, False, None, frozenset(), frozenset(), None)
    made = Switchboard(relay, str(tmp_path), hears_far=True)
    yield made
    made.close()


def here(address: FarAddress | None) -> FarAddress:
    """The address by the loopback, for machines without a network."""
    assert address is not None
    return FarAddress(address.token, address.port, ("127.0.0.1",))


def hear(board: Switchboard, until: object) -> None:
    deadline_s = time.monotonic() + 60
    while not until() and time.monotonic() < deadline_s:  # type: ignore[operator]
        board.wait(0.05)
    assert until()  # type: ignore[operator]


def test_addresses_travel_as_a_word() -> None:
    listener, address = listen_far()
    listener.close()
    assert FarAddress.parse(str(address)) == address
    assert set(local_addresses()) <= set(address.hosts)


def test_a_far_rank_is_heard_and_signalled(board: Switchboard) -> None:
    warden = Channel(here(board.far), "warden", 1)
    rank = Channel(here(board.far), "rank", 1)
    warden.tell("started", pid=os.getpid())
    hear(board, lambda: 1 in board.records and board.records[1].is_alive)
    record = board.records[1]
    assert record.is_far
    assert board.running() == []  # its process id means nothing here
    board.signal(signal.SIGTERM)
    assert warden.receive() == b"signal 15\n"
    rank.tell("failed", exit_code=3, summary="no", traceback="", place="", consequence=False, suspect=False)
    warden.tell("ended", status=3 << 8, relayed=0)
    hear(board, lambda: record.end is not None and record.failure is not None)
    record.leave()
    assert warden.receive() == b"leave\n"
    for channel in (rank, warden):
        channel.close()
    hear(board, lambda: record.warden_link is None)
    assert record.lost_at is None


@pytest.mark.parametrize("more", [{"token": "wrong"}, {}, {"event": "ended"}, None])
def test_strangers_are_not_heard(board: Switchboard, more: dict[str, str] | None) -> None:
    assert board.far is not None
    hello = {"event": "hello", "role": "warden", "rank": 0, "pid": 1, "at": 0.0, "status": 0, "relayed": 0}
    said = b"{GET / HTTP/1.1\n{}\n[]\n\xff" if more is None else json.dumps({**hello, **more}).encode()
    with socket.create_connection(("127.0.0.1", board.far.port), 5) as stranger:
        stranger.sendall(said + b"\n")
        for _ in range(10):
            board.wait(0.02)
    board.wait(0.02)
    assert board.records == {}


def test_a_launcher_out_of_reach_is_said_and_the_rank_runs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, str(ROOT / "launch" / "child.py"), "--mpi", "none", "--size", "1"]
    command += ["--folder", "/nowhere", "--far", f"00@{port}@127.0.0.1", "--", "-m", "this"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "cannot reach the launcher" in done.stderr
    assert "Zen of Python" in done.stdout
