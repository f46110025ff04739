"""Triton functions to cubins, ahead of time: several processes side by side, no GPU needed.

In: a `TritonModule` (codegen/triton/module.py), the compute capability, and a folder. Out: one `Cubin` a launch, in
order, and the files `FUNCTION.cubin` in the folder; `share_cubins`: those that any process has compiled come from the
cache. The front end of Triton is Python, and this process never imports it: workers.py has those that do.
Raises: BackendError where Triton refuses a function (with its own words).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from compiler_core import log
from compiler_core.codegen.cuda.workers import Workers
from compiler_core.codegen.triton.module import Launch, TritonModule
from compiler_core.errors import BackendError
from compiler_core.records import dataclass
from compiler_core.runtime.cache import Manifest, find, generator_fingerprint, load_or_build, make_key

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
