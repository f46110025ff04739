"""Triton functions to cubins, ahead of time: several processes side by side, no GPU needed.

In: a `Module` (codegen/triton/module.py), the compute capability, and a folder. Out: one `Cubin` a launch, in order,
and the files `FUNCTION.cubin` in the folder. A few functions are compiled here, many by `worker.py` in up to as many
processes as this process has cores: the front end of Triton is Python. Each worker takes the next function as soon as
it is done with one. What Triton writes into its own cache goes to the folder's `triton`, which is removed.
Raises: BackendError where Triton is not installed, or refuses a function (with its own words).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from compiler_core.codegen.cuda import worker
from compiler_core.codegen.triton.load import import_triton
from compiler_core.codegen.triton.module import Launch, Module
from compiler_core.config import available_cores
from compiler_core.errors import BackendError

ALONE = 2  # functions that are compiled in this process: another one takes longer to start
SOURCE = "kernels.py"


@dataclass(frozen=True, slots=True)
class Cubin:
    """A compiled function: the name of its file and in it, and what a launch needs.

    threads: of a block. shared: bytes of dynamic shared memory. scratch: for each argument that Triton adds behind
    those of the `Launch`, the bytes a program of the grid; 0: null.
    """

    file: str
    name: str
    threads: int
    shared: int
    scratch: tuple[int, ...]

    def to_json(self) -> list[Any]:
        return [self.file, self.name, self.threads, self.shared, list(self.scratch)]

    @staticmethod
    def from_json(row: Sequence[Any]) -> Cubin:
        file, name, threads, shared, scratch = row
        return Cubin(file, name, threads, shared, tuple(scratch))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A launch to be compiled. aligned: which of its parameters start on 16 bytes at every call."""

    launch: Launch
    aligned: tuple[int, ...]


def compile_cubins(module: Module, wanted: Sequence[Wanted], capability: int, folder: Path) -> list[Cubin]:
    """The cubins of `wanted`, in order; capability: 90 for sm_90."""
    import_triton()
    (folder / SOURCE).write_text(module.source)
    requests = [_request(one, capability, folder) for one in wanted]
    try:
        answers = _compile_here(requests, folder) if len(requests) <= ALONE else _compile_apart(requests, folder)
    finally:
        shutil.rmtree(folder / "triton", ignore_errors=True)
    return [_cubin(one, answer) for one, answer in zip(wanted, answers, strict=True)]


def _request(one: Wanted, capability: int, folder: Path) -> dict[str, Any]:
    launch = one.launch
    return {
        "function": launch.function,
        "signature": launch.signature,
        "aligned": one.aligned,
        "warps": launch.warps,
        "stages": launch.stages,
        "contracts": launch.contracts,
        "capability": capability,
        "cubin": str(folder / f"{launch.function}.cubin"),
    }


def _cubin(one: Wanted, answer: dict[str, Any]) -> Cubin:
    if "error" in answer:
        raise BackendError(
            f"Triton does not compile {one.launch.function}",
            got=answer["error"],
            remedy='report this with the dump of step "emit"; compile(..., backend="aot_eager") runs without kernels',
        )
    extra, known = answer["extra"], answer["scratch"]
    if extra > len(known) and extra:
        raise BackendError(
            f"{one.launch.function} wants {extra} arguments more than we know of",
            expected="global scratch and profile scratch",
            remedy="use Triton 3.5 to 3.9",
        )
    file = f"{one.launch.function}.cubin"
    return Cubin(file, answer["name"], answer["threads"], answer["shared"], tuple(known[:extra]))


def _compile_here(requests: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    triton = import_triton()
    knobs = triton.knobs
    before = knobs.runtime.interpret, knobs.cache.dir
    knobs.runtime.interpret, knobs.cache.dir = False, str(folder / "triton")
    try:
        functions = worker.load_functions(str(folder / SOURCE))
        return [_answer(functions, request) for request in requests]
    finally:
        knobs.runtime.interpret, knobs.cache.dir = before


def _answer(functions: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    try:
        return worker.compile_one(functions, request)
    except Exception as error:  # noqa: BLE001  as the worker's
        return {"error": f"{type(error).__name__}: {error}"}


def _compile_apart(requests: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Each worker is fed by a thread of its own; the last functions need not wait for the slowest of the first."""
    queue: SimpleQueue[tuple[int, dict[str, Any]] | None] = SimpleQueue()
    for numbered in enumerate(requests):
        queue.put(numbered)
    count = min(available_cores(), -(-len(requests) // ALONE))
    for _ in range(count):
        queue.put(None)
    answers: dict[int, dict[str, Any]] = {}
    with ThreadPoolExecutor(count) as pool:
        for served in pool.map(lambda _: dict(_serve(queue, folder)), range(count)):
            answers |= served
    return [answers[k] for k in range(len(requests))]


def _serve(queue: SimpleQueue[tuple[int, dict[str, Any]] | None], folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Requests from the queue through one worker, until there are none; (number, answer) of each."""
    process = _start(folder)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        while (numbered := queue.get()) is not None:
            place, request = numbered
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            yield place, json.loads(line) if line else {"error": f"its compiling process ended ({process.poll()})"}
        process.stdin.close()


def _start(folder: Path) -> subprocess.Popen[str]:
    paths = [path for path in sys.path if path]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TRITON_INTERPRET": "0",
    }
    return subprocess.Popen(
        [sys.executable, "-P", worker.__file__, str(folder / SOURCE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
