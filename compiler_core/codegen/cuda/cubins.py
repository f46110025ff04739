"""Triton functions to cubins, ahead of time: several processes side by side, no GPU needed.

In: a `TritonModule` (codegen/triton/module.py), the compute capability, and a folder. Out: one `Cubin` a launch, in
order, and the files `FUNCTION.cubin` in the folder; `share_cubins`: those that any process has compiled come from the
cache. `Workers` are processes of worker.py, up to as many as this process
has cores: the front end of Triton is Python, and this process never imports it. What Triton writes into its own cache
goes to the folder's `triton`, which is removed.
Raises: BackendError where Triton is not installed, or refuses a function (with its own words).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from compiler_core import log
from compiler_core.codegen.cuda import worker
from compiler_core.codegen.triton.load import import_triton
from compiler_core.codegen.triton.module import Launch, TritonModule
from compiler_core.config import available_cores
from compiler_core.errors import BackendError
from compiler_core.runtime.cache import Manifest, find, generator_fingerprint, load_or_build, make_key

MOST = 16  # workers
EXTRA = 2  # arguments that Triton may add: global scratch and profile scratch, which are null
_LONGEST = 1 << 20  # characters that a function written by hand counts for: what it calls is not in its text
SOURCE = "kernels.py"


@dataclass(frozen=True, slots=True)
class Cubin:
    """A compiled function: the name of its file and in it, and what a launch needs.

    threads: of a block. shared: bytes of dynamic shared memory. overlaps: see worker.py.
    """

    file: str
    name: str
    threads: int
    shared: int
    overlaps: bool = False

    def to_json(self) -> list[Any]:
        return [self.file, self.name, self.threads, self.shared, self.overlaps]

    @staticmethod
    def from_json(row: Sequence[Any]) -> Cubin:
        return Cubin(*row)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A launch to be compiled. aligned: which of its parameters start on 16 bytes at every call."""

    launch: Launch
    aligned: tuple[int, ...]


class Workers:
    """Processes that compile, as many as this process has cores; a block in which they live.

    They load Triton while the caller is still lowering; not `early`: when there is something to compile. folder: where
    Triton may write.
    """

    def __init__(self, folder: Path, *, early: bool = True) -> None:
        check_triton()
        self.folder = folder
        self._processes = self._begun(MOST) if early else []

    def _begun(self, most: int) -> list[subprocess.Popen[str]]:
        return [_start(self.folder) for _ in range(min(available_cores(), MOST, most))]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        shutil.rmtree(self.folder / "triton", ignore_errors=True)

    def compile(self, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers, in order. The longest come first; each process takes the next as soon as it is done with one."""
        if not requests:
            return []
        self._processes = self._processes or self._begun(len(requests))
        queue: SimpleQueue[tuple[int, dict[str, Any]] | None] = SimpleQueue()
        for numbered in sorted(enumerate(requests), key=lambda numbered: -numbered[1]["length"]):
            queue.put(numbered)
        for _ in self._processes:
            queue.put(None)
        answers: dict[int, dict[str, Any]] = {}
        with ThreadPoolExecutor(len(self._processes)) as pool:
            for served in pool.map(lambda process: dict(_serve(queue, process)), self._processes):
                answers |= served
        return [answers[k] for k in range(len(requests))]


def check_triton() -> None:
    """Raise BackendError, with the remedy, where Triton is not installed. It is not imported here."""
    if find_spec("triton") is None:
        import_triton()


def compile_cubins(
    module: TritonModule, wanted: Sequence[Wanted], capability: int, folder: Path, workers: Workers
) -> list[Cubin]:
    """The cubins of `wanted`, in order; capability: 90 for sm_90."""
    path = folder / SOURCE
    path.write_text(module.source)
    lengths = _lengths(module.source)
    requests = [_request(one, capability, path, lengths) for one in wanted]
    answers = workers.compile(requests)
    for one, answer in zip(wanted, answers, strict=True):
        log.emit("code", f"{one.launch.function}: {answer.get('seconds', 0.0):.2f} s")
    return [_cubin(one, answer) for one, answer in zip(wanted, answers, strict=True)]


def share_cubins(
    module: TritonModule, wanted: Sequence[Wanted], capability: int, folder: Path, workers: Workers, version: str
) -> list[Cubin]:
    """As `compile_cubins`, of code for many sizes: what another size has compiled is not compiled again.

    version: of Triton.
    """
    texts = _texts(module.source)
    launched = {one.launch.function for one in wanted}
    beside = "".join(text for name, text in texts.items() if name not in launched)
    keys = [_key(one, texts[one.launch.function], beside, f"{capability} {version}") for one in wanted]
    kept = {key: found for key in keys if (found := find(key)) is not None}
    missing = {key: one for key, one in zip(keys, wanted) if key not in kept}
    for key, cubin in zip(missing, compile_cubins(module, [*missing.values()], capability, folder, workers)):
        kept[key] = load_or_build(key, partial(_keep, folder, cubin))
    cubins = [Cubin.from_json(kept[key].manifest["cubin"]) for key in keys]
    for key, cubin in zip(keys, cubins, strict=True):
        kept[key].link(cubin.file, folder / cubin.file)
    return cubins


def _key(one: Wanted, text: str, beside: str, target: str) -> str:
    launch = one.launch
    facts = [launch.signature, one.aligned, launch.warps, launch.stages, launch.contracts, target]
    return make_key({"function": text, "beside": beside, "facts": repr(facts), "generator": generator_fingerprint()})


def _keep(made: Path, cubin: Cubin, folder: Path) -> Manifest:
    shutil.copy(made / cubin.file, folder / cubin.file)
    return {"cubin": cubin.to_json()}


def compile_some(wanted: Sequence[tuple[Path, Wanted]], capability: int, workers: Workers) -> list[Cubin | None]:
    """The cubins of functions in the `SOURCE`s of several folders, in order; None where Triton refuses one."""
    lengths = {folder: _lengths((folder / SOURCE).read_text()) for folder, _ in wanted}
    requests = [_request(one, capability, folder / SOURCE, lengths[folder]) for folder, one in wanted]
    made: list[Cubin | None] = []
    for (_, one), answer in zip(wanted, workers.compile(requests), strict=True):
        try:
            made.append(_cubin(one, answer))
        except BackendError as error:
            log.emit("tuning", str(error))
            made.append(None)
    return made


def _texts(source: str) -> dict[str, str]:
    """Each function's text, by its name; what stands before the first goes by none."""
    head, *texts = source.split("@triton.jit\ndef ")
    return {"": head} | {text.partition("(")[0]: text for text in texts}


def _lengths(source: str) -> dict[str, int]:
    """Of each function's text, which tell how long it takes to compile; those written by hand take longest."""
    return {name: len(text) for name, text in _texts(source).items()}


def _request(one: Wanted, capability: int, source: Path, lengths: Mapping[str, int]) -> dict[str, Any]:
    launch = one.launch
    return {
        "source": str(source),
        "length": lengths.get(launch.function, 0) + (_LONGEST if launch.shape is None else 0),
        "function": launch.function,
        "signature": launch.signature,
        "aligned": one.aligned,
        "warps": launch.warps,
        "stages": launch.stages,
        "contracts": launch.contracts,
        "capability": capability,
        "cubin": str(source.with_name(f"{launch.function}.cubin")),
    }


def _cubin(one: Wanted, answer: dict[str, Any]) -> Cubin:
    if "error" in answer:
        raise BackendError(
            f"Triton does not compile {one.launch.function}",
            got=answer["error"],
            remedy='report this with the dump of step "emit"; compile(..., backend="aot_eager") runs without kernels',
        )
    extra, known = answer["extra"], answer["scratch"]
    if extra > EXTRA or any(known):
        raise BackendError(
            f"{one.launch.function} wants arguments of its caller that it is not given",
            expected="at most global scratch and profile scratch, of no bytes",
            got=f"{extra} arguments; bytes of scratch a program: {known}",
            remedy="use Triton 3.5 to 3.9, without its profiler",
        )
    file = f"{one.launch.function}.cubin"
    return Cubin(file, answer["name"], answer["threads"], answer["shared"], answer["overlaps"])


def _serve(
    queue: SimpleQueue[tuple[int, dict[str, Any]] | None], process: subprocess.Popen[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Requests from the queue through one worker, until there are none; (number, answer) of each."""
    assert process.stdin is not None
    assert process.stdout is not None
    while (numbered := queue.get()) is not None:
        place, request = numbered
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        yield place, json.loads(line) if line else {"error": f"its compiling process ended ({process.poll()})"}


def _start(folder: Path) -> subprocess.Popen[str]:
    paths = [path for path in sys.path if path]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TRITON_INTERPRET": "0",
    }
    return subprocess.Popen(
        [sys.executable, "-P", worker.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
