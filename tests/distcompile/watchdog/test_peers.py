"""What ranks know of each other: by a mapped board, by datagrams; stopped, dead, silent, and strangers' questions."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from distcompile.watchdog.peers import Answerer, Card, Peers, host_key, life_of, local_addresses
from launch.board import Board, Phase, Reader, Where, create, now_ns

ROOT = Path(__file__).resolve().parents[3]
SECRET = bytes(range(16))
PEER = """
import sys, time
from launch.board import *
board = create(sys.argv[1], 1)
board.write(Where.MAIN, Phase.COMPILING, now_ns(), 57, -1, 2, board.place("Net_backward"))
print("ready", flush=True)
while True:
    board.beat()
    time.sleep(0.1)
"""


def card(process: int, path: str, port: int = 0) -> Card:
    return Card(host_key(), path, process, life_of(process)[1], local_addresses(), port)


@pytest.fixture
def own(tmp_path: Path) -> tuple[Board, str]:
    path = str(tmp_path / "own")
    return create(path, 0), path


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    path = str(tmp_path / "peer")
    process = subprocess.Popen([sys.executable, "-c", PEER, path], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process, path
    process.kill()
    process.wait(60)
    process.stdout.close()


def ask(peers: Peers, until: str) -> str:
    """The sentence of rank 1, once it holds `until`."""
    deadline_s = time.monotonic() + 60
    while until not in (said := peers.reports([1])[1].sentence) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return said


def test_a_rank_of_this_host(own: tuple[Board, str], peer: tuple[subprocess.Popen[str], str]) -> None:
    process, path = peer
    peers = Peers(0, [card(os.getpid(), own[1]), card(process.pid, path)], SECRET)
    report = peers.reports([1])[1]
    assert report.compiled_s_ago == 0
    assert not report.is_gone
    assert "rank 1 has been compiling segment 2 of Net_backward for" in report.sentence
    os.kill(process.pid, signal.SIGSTOP)
    assert "is stopped (SIGSTOP)" in ask(peers, "stopped")
    assert peers.reports([1])[1].compiled_s_ago == math.inf
    os.kill(process.pid, signal.SIGKILL)
    said = ask(peers, "is gone")
    assert f"rank 1's process {process.pid} is gone; at its last sign of life it has been compiling segment 2" in said
    assert peers.reports([1])[1].is_gone


def test_another_process_of_the_same_number_is_not_the_rank(own: tuple[Board, str]) -> None:
    mine = card(os.getpid(), own[1])
    peers = Peers(0, [mine, replace(mine, born=mine.born + 1)], SECRET)
    assert peers.reports([1])[1].is_gone


def test_a_rank_of_another_host_answers(own: tuple[Board, str], tmp_path: Path) -> None:
    path = str(tmp_path / "far")
    far = create(path, 1)
    far.write(Where.MAIN, Phase.COMPILING, now_ns(), 3, label=far.place("Net"))
    answerer = Answerer(Reader.open(path), SECRET)
    try:
        elsewhere = replace(card(os.getpid(), "/nowhere", answerer.port), key="another host")
        peers = Peers(0, [card(os.getpid(), own[1]), elsewhere], SECRET)
        report = peers.reports([1])[1]
        assert "rank 1 has been compiling Net" in report.sentence
        assert report.compiled_s_ago == 0
        far.compiled()
        far.write(Where.MAIN, Phase.FINISHED, now_ns())
        assert not peers.reports([1])[1].is_gone  # it may still be closing the group
        far.exception("ValueError: no", "train.py:88", 3)
        far.write(Where.MAIN, Phase.EXCEPTION, now_ns())
        assert "rank 1 left step 3 after an exception at train.py:88" in peers.reports([1])[1].sentence
        assert peers.reports([1])[1].is_gone
        assert 0 < peers.reports([1])[1].compiled_s_ago < 10
        strangers = Peers(0, [card(os.getpid(), own[1]), elsewhere], bytes(16))
        assert "does not answer" in strangers.reports([1])[1].sentence
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
            noise.sendto(b"?", ("127.0.0.1", answerer.port))
        assert peers.reports([1])[1].is_gone
    finally:
        answerer.close()
    assert "rank 1 does not answer" in peers.reports([1])[1].sentence
    assert not peers.reports([1])[1].is_gone


def test_another_hosts_file_of_the_same_path_is_not_taken(own: tuple[Board, str]) -> None:
    other = replace(card(os.getpid(), own[1]), process=os.getpid() + 1)
    peers = Peers(0, [card(os.getpid(), own[1]), other], SECRET)
    assert list(peers.readers) == [0]
