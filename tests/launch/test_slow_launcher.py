"""A launcher that is late: what ranks have said long ago, and it has not read yet, is no failure of theirs."""

from __future__ import annotations

import time
from pathlib import Path

from launch import ending
from launch.channel import Channel
from launch.records import RankRecord
from launch.screen.output import Screen, Writer
from launch.screen.relay import Relay
from launch.switchboard import Switchboard

RANKS = 40


def test_everybody_who_waits_is_heard_in_two_rounds(tmp_path: Path) -> None:
    switchboard = Switchboard(Relay(Screen(RANKS, Writer(), False), True), str(tmp_path))
    channels = [Channel(str(tmp_path), "rank", rank) for rank in range(RANKS)]
    for channel in channels:
        channel.tell("done")
    for _ in range(2):
        switchboard.wait(0.0)
    assert sum(record.is_done for record in switchboard.records.values()) == RANKS
    for channel in channels:
        channel.close()
    switchboard.close()


def test_the_grace_period_of_a_good_exit_code_begins_when_it_is_read() -> None:
    record = RankRecord(0)
    record.take({"event": "started", "at": 0.0, "pid": 1})
    record.take({"event": "ended", "at": time.monotonic() - 100, "status": 0, "relayed": 0})
    begins = ending.begins_at([record], size=2, grace_s=3.0)
    assert begins is not None
    assert begins > time.monotonic() + 2
    record.take({"event": "done", "at": 0.0})
    assert ending.begins_at([record], size=2, grace_s=3.0) is None
