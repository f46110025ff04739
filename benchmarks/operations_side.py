"""One side of operations.py: compiles rows and times them, in a process of its own each, on demand.

In: questions, one JSON line each on stdin ({"do": "list"}, {"do": "start", "row": NAME}, "sample", "memory", "stop").
Out: one JSON line an answer; the first says who this side is. A row runs in a fork of this process, so that the
framework is imported once and no row sees what another left in memory.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from framework import NAME, identity, torch
from operation_rows import OPTIMIZED_SHAPES, OPTIMIZERS, ROWS, Row

SAMPLE_S = 0.02  # CPU time that a sample takes at least
WARM_UP = 3
Step = Callable[[], tuple[Any, ...]]


def _tensor(array: np.ndarray[Any, Any], row: Row) -> Any:
    made = torch.from_numpy(np.ascontiguousarray(array))
    if array.dtype != np.float32:
        return made
    return made.to(getattr(torch, row.dtype)).requires_grad_(row.wanted)


def _drawn(layers: Any, rng: np.random.Generator) -> Any:
    """`layers` with parameters from `rng`: equal on both sides."""
    for parameter in layers.parameters():
        parameter.data = torch.from_numpy(0.05 * rng.standard_normal(tuple(parameter.shape), np.float32))
    return layers


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def row_step(name: str) -> Step:
    """One forward and backward of a row; it returns the results and the gradients."""
    row, rng = ROWS[name], np.random.default_rng(zlib.crc32(name.encode()))
    inputs = [_tensor(draw(rng), row) for draw in row.inputs]
    parameters = [x for x in inputs if x.requires_grad]
    compute: Any = row.compute
    if row.layers is not None:
        compute = _drawn(row.layers(), rng).to(getattr(torch, row.dtype))
        parameters += compute.parameters()
    compiled = torch.compile(compute)
    results = [r for r in _as_tuple(compiled(*inputs)) if r.requires_grad]
    tangents = [torch.from_numpy(rng.standard_normal(tuple(r.shape), np.float32)).to(r.dtype) for r in results]

    def step() -> tuple[Any, ...]:
        for parameter in parameters:
            parameter.grad = None
        results = _as_tuple(compiled(*inputs))
        flowing = [r for r in results if r.requires_grad]
        if flowing:
            torch.autograd.backward(flowing, tangents)
        return (*results, *(p.grad for p in parameters))

    return step


def optimizer_step(name: str) -> Step:
    """One step of an optimizer on parameters of an MLP, whose gradients stay."""
    rng = np.random.default_rng(0)

    def draw() -> list[Any]:
        return [torch.from_numpy(rng.standard_normal(shape, np.float32)) for shape in OPTIMIZED_SHAPES]

    parameters = [torch.nn.Parameter(value) for value in draw()]
    for parameter, gradient in zip(parameters, draw()):
        parameter.grad = gradient
    optimizer = OPTIMIZERS[name.removesuffix(" step")](parameters)
    stepping = torch.compile(optimizer.step) if NAME == "torch" else optimizer.step  # ours compiles what it runs

    def step() -> tuple[Any, ...]:
        stepping()
        return ()

    return step


def names() -> list[str]:
    return [*ROWS, *(f"{name} step" for name in OPTIMIZERS)]


def make_step(name: str) -> Step:
    return row_step(name) if name in ROWS else optimizer_step(name)


def digest(values: tuple[Any, ...]) -> list[float]:
    """One number a value: its mean size, in float64."""
    return [float(np.mean(np.abs(v.detach().to(torch.float64).numpy()))) for v in values if v is not None]


# ---- memory


def _status(field: str) -> float:
    """A field of /proc/self/status, in MB; 0 where there is no such file."""
    try:
        with open("/proc/self/status") as lines:
            return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))
    except OSError:
        return 0.0


def peak_growth_mb(step: Step) -> float:
    """By how much a step's peak exceeds what is resident beforehand, freed memory having been given back."""
    gc.collect()
    if platform.system() == "Linux":
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak starts anew
    before = _status("VmRSS")
    for _ in range(WARM_UP):
        step()
    return max(_status("VmHWM") - before, 0.0)


# ---- questions and answers


class Measured:
    """A row that is being measured."""

    def __init__(self, name: str) -> None:
        self._step = make_step(name)
        self._step()
        self.digest = digest(self._step())
        self._inner = 1
        while self.seconds() * self._inner < SAMPLE_S:
            self._inner *= 2

    def seconds(self) -> float:
        """CPU time of one call."""
        begun = time.process_time()
        for _ in range(self._inner):
            self._step()
        return (time.process_time() - begun) / self._inner

    def answer(self, what: str) -> dict[str, Any]:
        if what == "sample":
            return {"seconds": self.seconds()}
        if what == "memory":
            return {"mb": peak_growth_mb(self._step)}
        return {"stopped": True}


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def serve_row(name: str) -> None:
    """In a fork: measure `name` until told to stop. What goes wrong is the answer."""
    try:
        row: Measured | None = Measured(name)
        say({"ready": name, "digest": row.digest})
    except Exception as error:  # noqa: BLE001  reported, in the table
        row = None
        text = str(error).strip()
        say({"error": f"{type(error).__name__}: {text.splitlines()[0][:100] if text else ''}"})
    for line in sys.stdin:
        question = json.loads(line)
        if row is not None or question["do"] == "stop":
            say(row.answer(question["do"]) if row is not None else {"stopped": True})
        if question["do"] == "stop":
            return


def main() -> None:
    say(dict(identity()))
    sys.stdin.reconfigure(line_buffering=True)
    while line := _read_line():
        question = json.loads(line)
        if question["do"] == "list":
            say({"rows": names()})
            continue
        child = os.fork()
        if child == 0:
            sys.stdin = os.fdopen(os.dup(0), "r")
            serve_row(question["row"])
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


def _read_line() -> str:
    """A line of stdin, and not a byte more: the next ones are for the fork."""
    found = b""
    while not found.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        found += byte
    return found.decode()


if __name__ == "__main__":
    main()
