"""Checkpoints of a job: written by rank 0, whole or not at all, and resumed to the same bits at any number of ranks.

In: a folder, and whatever has `state_dict` and `load_state_dict`: model, optimizer, scheduler. Out: one file a
checkpoint, `step-0000000100.safetensors`, with those states, the position in the data, and the generators of all ranks.
Invariants: a file has its name only once it is complete on the disk (serialization.py: temporary file, fsync, replace),
and carries a SHA-256; the newest `keep` are kept, an older one is removed only after a newer one is in place; rank 0
alone reads and writes, so ranks need no common file system. A damaged newest file is said, and the one before is taken.
A model is saved without its wrappers (DDP, compile), so that it loads with and without them.

    checkpoints = Checkpoints("runs/7")
    at = checkpoints.load(model=model, optimizer=optimizer)          # Position(0, 0, 0) in an empty folder
    sampler.set_position(at.epoch, at.samples)
    ...
    checkpoints.save(Position(step, epoch, samples), model=model, optimizer=optimizer)
"""

from __future__ import annotations

import io
import os
import random
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from collectives import Communicator
from compiler_core import log, observe
from compiler_core.capture.guards.module_protocol import unwrapped
from compiler_core.tensor.making.random import get_rng_state, set_rng_state
from compiler_core.tensor.tensor import Tensor
from distcompile import serialization
from distcompile.distributed.group import ProcessGroup, get_global_rank, group_or_default, is_initialized
from distcompile.errors import ArgumentError, CheckpointError
from distcompile.nn.parallel import DistributedDataParallel

FORMAT = 2  # 1: a generator's state was 16 numbers
NAME = re.compile(r"step-(\d{10})\.safetensors")


class Stateful(Protocol):
    """What a checkpoint can hold."""

    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Position:
    """How far training has come. samples: of this epoch, read by all ranks together."""

    step: int = 0
    epoch: int = 0
    samples: int = 0


class Checkpoints:
    """The checkpoints in `folder`. keep: how many of the newest stay. group: the ranks of the job (None: the default).

    save and load are collective; all ranks give parts of the same names.
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 2, group: ProcessGroup | None = None) -> None:
        if keep < 1:
            raise ArgumentError("at least one checkpoint must be kept", got=str(keep))
        self.folder, self.keep = Path(folder), keep
        self.group: Communicator | None = group_or_default(group) if group is not None or is_initialized() else None

    # --- save -----------------------------------------------------------------------------------------------------

    def save(self, position: Position, /, **parts: Stateful) -> Path:
        """Write a checkpoint. Returns its path; raises CheckpointError, on every rank, if it cannot be written."""
        with observe.phase("checkpoint"):
            for part in parts.values():
                if hasattr(part, "consolidate_state_dict"):
                    part.consolidate_state_dict(to=get_global_rank(self.group, 0))
            generators = self._gathered(_generators())
            path = self.folder / f"step-{position.step:010d}.safetensors"
            failure = self._write(path, position, parts, generators) if self._is_first() else None
            failure = self._told(failure)
        if failure:
            raise CheckpointError(
                f"the checkpoint of step {position.step} could not be written",
                where=str(path),
                got=failure,
                remedy="make room, or give another folder; earlier checkpoints are untouched",
            )
        return path

    def _write(
        self, path: Path, position: Position, parts: Mapping[str, Stateful], generators: list[Any]
    ) -> str | None:
        """Why it went wrong, or None."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            contents = {
                "format": FORMAT,
                "position": asdict(position),
                "generators": generators,
                "parts": {name: dict(bare(part).state_dict()) for name, part in parts.items()},
            }
            serialization.save_safetensors(contents, path)
            for old in self.paths()[self.keep :]:
                old.unlink()
        except (OSError, CheckpointError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    # --- load -----------------------------------------------------------------------------------------------------

    def paths(self) -> list[Path]:
        """The checkpoints there are on this host, newest first."""
        if not self.folder.is_dir():
            return []
        return sorted((p for p in self.folder.iterdir() if NAME.fullmatch(p.name)), reverse=True)

    def load(self, **parts: Stateful) -> Position:
        """Resume from the newest good checkpoint; Position(0, 0, 0), with nothing changed, if the folder has none.

        Raises CheckpointError, on every rank, if there are checkpoints but none is good, or if one lacks a part.
        """
        with observe.phase("checkpoint"):
            data, failure = self._read_newest() if self._is_first() else (b"", None)
            failure = self._told(failure)
            if failure:
                raise CheckpointError("no checkpoint can be read", where=str(self.folder), got=failure)
            data = self._sent(data)
            return self._restore(serialization.load(io.BytesIO(data)), parts) if data else Position()

    def _read_newest(self) -> tuple[bytes, str | None]:
        """(the newest good file's bytes, None); (empty, None) if there is no file; (empty, why) if none is good."""
        damaged = []
        for path in self.paths():
            try:
                data = path.read_bytes()
                _check(serialization.load(io.BytesIO(data)))
            except (OSError, ValueError, KeyError, TypeError) as error:
                damaged.append(f"{path.name}: {str(error).partition(chr(10))[0]}")
                log.warn_once(f"checkpoint {path}", f"checkpoint passed over, an earlier one is taken: {damaged[-1]}")
            else:
                return data, None
        return b"", "; ".join(damaged) or None

    def _restore(self, contents: Mapping[str, Any], parts: Mapping[str, Stateful]) -> Position:
        saved = contents["parts"]
        if saved.keys() != parts.keys():
            raise CheckpointError(
                "the checkpoint holds other parts", expected=", ".join(sorted(parts)), got=", ".join(sorted(saved))
            )
        for name, part in parts.items():
            bare(part).load_state_dict(saved[name])
        rank, world_size = (self.group.rank, self.group.world_size) if self.group else (0, 1)
        _set_generators(contents["generators"], rank, world_size)
        return Position(**contents["position"])

    # --- ranks ----------------------------------------------------------------------------------------------------

    def _is_first(self) -> bool:
        return self.group is None or self.group.rank == 0

    def _gathered(self, value: Any) -> list[Any]:
        return [value] if self.group is None else self.group.all_gather_object(value)

    def _told(self, value: str | None) -> str | None:
        """Rank 0's value, on all ranks."""
        return value if self.group is None else self.group.broadcast_object(value)

    def _sent(self, data: bytes) -> bytes:
        """Rank 0's bytes, on all ranks."""
        if self.group is None or self.group.world_size == 1:
            return data
        size = np.array([len(data)], np.int64)
        self.group.broadcast(size, label="size of the checkpoint")
        array = np.frombuffer(bytearray(data), np.uint8) if self.group.rank == 0 else np.empty(int(size[0]), np.uint8)
        self.group.broadcast(array, label="checkpoint")
        return array.tobytes()


def bare(part: Stateful) -> Stateful:
    """What is inside compile(...) and DistributedDataParallel(...)."""
    inner = unwrapped(part)
    module: Stateful = unwrapped(inner.module) if isinstance(inner, DistributedDataParallel) else inner
    return module


def _check(contents: Any) -> None:
    """Raise CheckpointError for a file that this version did not write."""
    if not isinstance(contents, dict) or contents.get("format") != FORMAT:
        raise CheckpointError("not a checkpoint of this version", expected=f"format {FORMAT}")
    Position(**contents["position"])


# --- generators -------------------------------------------------------------------------------------------------------


def _generators() -> dict[str, Any]:
    """The states of this rank's default generator, NumPy's and Python's."""
    version, numbers, spare = random.getstate()
    name, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "distcompile": get_rng_state().numpy().tobytes().hex(),
        "python": [version, list(numbers), spare],
        "numpy": [str(name), np.asarray(keys).tolist(), int(place), int(has_gauss), float(gauss)],
    }


def _set_generators(saved: list[dict[str, Any]], rank: int, world_size: int) -> None:
    """Each rank goes on with its own state, or, at another number of ranks, with the one that all had."""
    if len(saved) != world_size and any(state["distcompile"] != saved[0]["distcompile"] for state in saved):
        log.warn_once(
            "checkpoint: generators",
            f"the generators of {len(saved)} ranks differed and there are {world_size} ranks now: "
            "ranks go on with other random numbers than without the interruption",
        )
    state = saved[rank % len(saved)]
    set_rng_state(Tensor._wrap(np.frombuffer(bytes.fromhex(state["distcompile"]), np.uint8).copy()))
    version, numbers, spare = state["python"]
    random.setstate((version, tuple(numbers), spare))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))
