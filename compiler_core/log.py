"""Named log artefacts, the dump directory, and warnings that are given once.

In: texts with the name of the pipeline step (or artefact) they belong to. Out: stderr lines, files.

`DISTCOMPILE_LOGS=guards,fusion` turns single artefacts on; `DISTCOMPILE_DEBUG=1..5` turns on all up to a level.
A dump is `DUMP/rank{r}/{graph}/{nn}_{step}.txt`: every stage of every graph, in pipeline order.
The rank is told from outside (`set_rank`): the core knows nothing of MPI.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from compiler_core.config import config
from compiler_core.errors import ConfigError

# artefact name -> debug level that turns it on
LEVELS: dict[str, int] = {
    "steps": 1, "recompiles": 1, "breaks": 1, "comm": 1, "cache": 1, "tuning": 1,
    "guards": 2, "graph": 2, "aot": 2, "ddp": 2,
    "fusion": 3, "memory": 3,
    "definitions": 4, "loop_ir": 4,
    "code": 5,
}  # fmt: skip

_rank = 0
_warned: set[str] = set()


def set_rank(rank: int) -> None:
    """Tell the log which rank this process is; it prefixes lines and names the dump folder."""
    global _rank
    _rank = rank


def rank() -> int:
    """Which rank this process is, as it was told."""
    return _rank


def is_on(artefact: str) -> bool:
    """Whether `artefact` is logged. Raises ConfigError if DISTCOMPILE_LOGS names something unknown."""
    unknown = config.logs - LEVELS.keys()
    if unknown:
        raise ConfigError(
            f"DISTCOMPILE_LOGS names unknown artefacts: {', '.join(sorted(unknown))}", expected=", ".join(LEVELS)
        )
    return artefact in config.logs or config.debug >= LEVELS[artefact]


def emit(artefact: str, text: str) -> None:
    """Write `text` to stderr under `artefact`'s name, if that is on."""
    if is_on(artefact):
        prefix = f"[rank {_rank}] {artefact}: "
        sys.stderr.write("".join(f"{prefix}{line}\n" for line in text.splitlines()))


def dump(graph_name: str, number: int, step: str, text: str) -> None:
    """Write one stage's text below DISTCOMPILE_DUMP, if that is set. Raises ConfigError where it cannot be written."""
    if not config.dump_dir:
        return
    folder = Path(config.dump_dir) / f"rank{_rank}" / graph_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:02d}_{step}.txt").write_text(text)
    except OSError as error:
        raise ConfigError(
            f"DISTCOMPILE_DUMP={config.dump_dir!r} cannot be written",
            got=str(error),
            remedy="set it to a folder that can be written, or to nothing",
        ) from error


class DistCompileWarning(UserWarning):
    """Category of every warning this project gives."""


def warn_once(key: str, message: str, *, stacklevel: int = 2) -> None:
    """Warn with `message` the first time `key` is seen in this process."""
    if key not in _warned:
        _warned.add(key)
        warnings.warn(message, DistCompileWarning, stacklevel=stacklevel + 1)


def forget_warnings() -> None:
    """Forget which warnings were given (tests start from a clean slate)."""
    _warned.clear()
