"""Compiled code from host to host: one builds, the others have it; whoever fails or lies, nobody hangs."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler_core.config import config
from compiler_core.log import DistCompileWarning
from compiler_core.runtime import cache, code_exchange, places
from compiler_core.runtime.code_exchange import Address, Exchange, greet
from compiler_core.runtime.code_server import Server

KEYS = [cache.make_key({"number": str(k)}) for k in range(4)]
SECRET = secrets.token_bytes(32)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Address]:
    (tmp_path / "shelf").mkdir()
    with config.patch(cache_dir=tmp_path / "of the server"):
        found = Server(SECRET, tmp_path / "shelf")
        threading.Thread(target=found.serve, daemon=True).start()
        yield Address("rank 0's", ("127.0.0.1",), found.port, SECRET)


class Host:
    """A host with a cache of its own, which asks."""

    def __init__(self, address: Address, folder: Path) -> None:
        self.exchange, self.folder, self.built = Exchange(address, "mine"), folder, list[str]()

    def need(self, key: str, *, takes_s: float = 0.0, fails: bool = False) -> bytes:
        """What load_or_build makes of the key; `config` is the process's, so the cache's parts are called here."""

        def build(folder: Path) -> dict[str, Any]:
            self.built.append(key)
            time.sleep(takes_s)
            if fails:
                raise ValueError("this host has no compiler")
            (folder / "code.so").write_bytes(b"code of " + key.encode())
            return {"by": "us"}

        with self.exchange.ask(key) as asked:
            folder = self.folder / key
            made = cache.build_and_publish(folder, asked.code or build, is_alone=True)
            asked.give(made)
        assert made.manifest == {"by": "us"}
        return made.read("code.so")


def hosts(address: Address, tmp_path: Path, count: int) -> list[Host]:
    return [Host(address, tmp_path / f"host {k}") for k in range(count)]


def side_by_side(*calls: Any) -> list[BaseException | None]:
    """The calls, each in a thread; what they raised. None of them takes long."""
    raised: list[BaseException | None] = [None] * len(calls)

    def run(k: int) -> None:
        try:
            calls[k]()
        except ValueError as error:
            raised[k] = error

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "it hangs"
    return raised


def test_one_host_builds_and_the_others_have_it(server: Address, tmp_path: Path) -> None:
    many = hosts(server, tmp_path, 4)
    assert side_by_side(*(lambda h=h: h.need(KEYS[0], takes_s=0.2) for h in many)) == [None] * 4
    assert sum(len(host.built) for host in many) == 1
    for host in many:
        assert (host.folder / KEYS[0] / "code.so").read_bytes() == b"code of " + KEYS[0].encode()


def test_hosts_that_need_them_in_any_order_wait_for_nobody_in_a_circle(server: Address, tmp_path: Path) -> None:
    many = hosts(server, tmp_path, 4)
    orders = [KEYS, KEYS[::-1], KEYS[2:] + KEYS[:2], KEYS[1:] + KEYS[:1]]

    def run(host: Host, keys: list[str]) -> None:
        for key in keys:
            host.need(key, takes_s=0.05)

    side_by_side(*(lambda h=h, o=o: run(h, o) for h, o in zip(many, orders, strict=True)))
    assert sorted(key for host in many for key in host.built) == sorted(KEYS)


def test_where_one_fails_the_next_builds(server: Address, tmp_path: Path) -> None:
    bad, good = hosts(server, tmp_path, 2)
    began = threading.Event()

    def late() -> None:
        began.wait(10)
        good.need(KEYS[0])

    def failing() -> None:
        threading.Timer(0.1, began.set).start()
        bad.need(KEYS[0], takes_s=0.3, fails=True)

    raised = side_by_side(failing, late)
    assert str(raised[0]) == "this host has no compiler"
    assert raised[1] is None
    assert good.built == [KEYS[0]]


def test_all_fail_by_themselves_where_nobody_can_build(server: Address, tmp_path: Path) -> None:
    many = hosts(server, tmp_path, 3)
    raised = side_by_side(*(lambda h=h: h.need(KEYS[0], fails=True) for h in many))
    assert [str(error) for error in raised] == ["this host has no compiler"] * 3


def test_code_of_another_origin_is_another(server: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = hosts(server, tmp_path, 3)
    first.need(KEYS[0])
    with monkeypatch.context() as patched:
        patched.setattr(cache, "origin", lambda: {"CPU": "of another kind"})
        second.need(KEYS[0])
        third.need(KEYS[0])
    assert (first.built, second.built, third.built) == ([KEYS[0]], [KEYS[0]], [])


def test_what_the_servers_host_has_already_is_handed_out(server: Address, tmp_path: Path) -> None:
    def build(folder: Path) -> dict[str, Any]:
        (folder / "code.so").write_bytes(b"of an earlier job")
        return {"by": "us"}

    cache.load_or_build(KEYS[0], build)
    (host,) = hosts(server, tmp_path, 1)
    assert host.need(KEYS[0]) == b"of an earlier job"
    assert not host.built


def test_a_server_that_is_lost_is_said_once_and_asked_no_more(server: Address, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    host = Host(Address("rank 0's", ("127.0.0.1",), port, SECRET), tmp_path)
    with pytest.warns(DistCompileWarning, match="is lost .*compiles what it needs by itself"):
        host.need(KEYS[0])
    host.need(KEYS[1])
    assert host.built == KEYS[:2]
    assert host.exchange.is_lost


def test_a_server_that_says_nothing_is_waited_for_with_a_limit(
    server: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "LOCK_LIMIT_S", 0.2)
    slow, host = hosts(server, tmp_path, 2)
    with pytest.warns(DistCompileWarning, match="is lost"):
        side_by_side(lambda: slow.need(KEYS[0], takes_s=1.0), lambda: (time.sleep(0.3), host.need(KEYS[0])))
    assert host.built == [KEYS[0]]


def test_strangers_get_nothing_and_send_nothing(
    server: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_exchange, "GREETING_S", 2.0)
    with pytest.raises(OSError, match=r"ended|reset|Broken"):
        greet("127.0.0.1", server.port, secrets.token_bytes(32))
    with socket.create_connection(("127.0.0.1", server.port), 5) as line:
        line.settimeout(5)
        assert len(code_exchange.receive(line, 32)) == 32
        code_exchange.send(line, b"\0" * 64)
        assert line.recv(1) == b""
    (host,) = hosts(server, tmp_path, 1)
    host.need(KEYS[0])
    assert host.built == [KEYS[0]]
    assert not host.exchange.is_lost


def between(port: int, changed: int) -> int:
    """The port of somebody who passes on what the two say, but for the server's frame number `changed`: a bit of it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        asker, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for number in range(3):  # the greeting, twice, and the code
            said = code_exchange.receive(server)
            code_exchange.send(asker, bytes([said[0] ^ 1, *said[1:]]) if number == changed else said)
            if number < 2:
                code_exchange.send(server, code_exchange.receive(asker))

    threading.Thread(target=run, daemon=True).start()
    return int(listener.getsockname()[1])


def test_code_that_was_changed_on_its_way_is_not_taken(server: Address, tmp_path: Path) -> None:
    first, second, third = hosts(server, tmp_path, 3)
    wanted = first.need(KEYS[0])
    second.exchange.server = Address("rank 0's", ("127.0.0.1",), between(server.port, -1), SECRET)
    assert second.need(KEYS[0]) == wanted
    assert not second.built
    third.exchange.server = Address("rank 0's", ("127.0.0.1",), between(server.port, 2), SECRET)
    with pytest.warns(DistCompileWarning, match="changed on its way"):
        assert third.need(KEYS[0]) == wanted
    assert third.built == [KEYS[0]]
