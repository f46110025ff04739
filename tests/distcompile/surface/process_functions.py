"""What processes run in test_multiprocessing_against_torch.py: in a file that imports neither library.

A process that is spawned imports the file of its function, and only the library that it is a process of.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

WAIT_S = 120.0  # a process that is spawned imports its library


def write(number: int, folder: str, text: str) -> None:
    (Path(folder) / str(number)).write_text(text)


def fail(number: int) -> None:
    if number == 1:
        raise ValueError("the second one")
    time.sleep(60)


def leave(number: int) -> None:
    if number == 0:
        sys.exit(5)
    time.sleep(60)


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def step_and_send(number: int, name: str, model: Any, given: Any, sent: Any, seen: Any) -> None:
    library = importlib.import_module(name)
    given.add_(5)
    optimizer = library.optim.SGD(model.parameters(), lr=0.5)
    model(library.ones(1, 2)).sum().backward()
    optimizer.step()
    made = library.ones(3)
    sent.put(made)
    seen.get(timeout=WAIT_S)
    made.add_(1)
    sent.put(None)
    seen.get(timeout=WAIT_S)
