"""torch.compiler's portable cache: what this process has compiled as bytes, and such bytes back in the cache.

In: what the artefact cache says this process took or built; bytes. Out: bytes, back in the cache; what was in them, by
kind and key. The form, and what of it is not taken: `compiler_core/runtime/portable.py`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compiler_core import log
from compiler_core.config import config
from compiler_core.errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compiler_core.runtime.portable import Packed


@dataclass
class CacheInfo:
    """What was saved or taken: kind -> keys. "inductor": compiled graphs; "autotune": kernels' measured tiles.

    "native": what all programs share: kernels of eager code, threads, random numbers. Torch's other kinds are empty:
    a graph is captured and differentiated anew in each process.
    """

    artifacts: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @staticmethod
    def of(entries: Iterable[Packed]) -> CacheInfo:
        info = CacheInfo()
        for entry in entries:
            info.artifacts[_kind(entry)].append(entry.key)
        return info

    @property
    def inductor_artifacts(self) -> list[str]:
        return self.artifacts.get("inductor", [])

    @property
    def autotune_artifacts(self) -> list[str]:
        return self.artifacts.get("autotune", [])

    @property
    def aot_autograd_artifacts(self) -> list[str]:
        return self.artifacts.get("aot_autograd", [])

    @property
    def pgo_artifacts(self) -> list[str]:
        return self.artifacts.get("pgo", [])

    @property
    def precompile_artifacts(self) -> list[str]:
        return self.artifacts.get("precompile", [])

    def clear(self) -> None:
        self.artifacts.clear()

    def empty(self) -> bool:
        return not self.artifacts


def _kind(entry: Packed) -> str:
    if "tile" in entry.manifest:
        return "autotune"
    return "inductor" if entry.kind == "compiled graph" and entry.manifest else "native"


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """The artefacts that this process has compiled, or found compiled, as bytes, and which they are; None: none.

    They are for the same kind of place: CPU, C++ compiler, C library, version of distcompile. A program that has loaded
    them, and compiles the same, runs no compiler. With DISTCOMPILE_CACHE=0 there are none.
    """
    from compiler_core.runtime import cache, portable

    data, packed = portable.pack(cache.USED)
    return (data, CacheInfo.of(packed)) if packed else None


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo | None:
    """Put what `save_cache_artifacts` gave, or a file of `distcompile cache export`, into this machine's cache.

    Gives what was taken or was there; None, with a warning, for bytes that are no such file, or a damaged one. What was
    made for another kind of place is left out, with a warning that says why. Nothing of it runs here, but it is machine
    code, which runs when the function is called that it was made of: take it only from those whose programs you
    would run. Raises CacheError where nothing can be stored.
    """
    from compiler_core.runtime import portable

    if not isinstance(serialized_artifacts, (bytes, bytearray, memoryview)):
        raise TypeError(f"load_cache_artifacts() takes bytes, not {type(serialized_artifacts).__name__}")
    if not config.use_cache:
        log.warn_once("artefacts without a cache", "no artefacts are loaded: DISTCOMPILE_CACHE=0 turns the cache off")
        return None
    try:
        entries = [*portable.unpack(bytes(serialized_artifacts))]
    except CacheError as error:
        log.warn_once(f"artefacts {error.got}", f"no artefacts are loaded: {error.what}: {error.got}")
        return None
    taken = portable.take(entries)
    for complaint in taken.complaints():
        log.warn_once(complaint, complaint)
    return CacheInfo.of([*taken.new, *taken.known])
