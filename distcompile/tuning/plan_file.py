"""Plan files: a bucket plan with what it was computed from, which loads only where it fits.

In: a `PlanRecord`. Out: a JSON file, written atomically (temporary file beside it, fsync, os.replace), and back.
A file is checked in this order, each failure an error of its own text: there and readable, JSON, ours, whole (a digest
over its contents), of this version, a plan (`plan_text`); then whether it fits: parameter names, shapes and dtypes,
world size, transport, ranks by host. What differs is named. Nothing of a file that does not fit is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distcompile.ddp.errors import PlanError
from distcompile.ddp.plan.bucket_plan import BucketPlan, ReadyParameter
from distcompile.ddp.plan.plan_text import plan_from_data, to_text
from distcompile.tuning.cost import CostFit, CostPiece, CostPoint
from distcompile.tuning.errors import PlanFileError, PlanFileMismatchError

KIND = "distcompile bucket plan"
VERSION = 1
NAMED = 3  # differing parameters that an error lists


@dataclass(frozen=True, slots=True)
class Place:
    """Where a plan holds: ranks, transport, and how many of them share each host ("2", "1+1")."""

    world_size: int
    transport: str
    hosts: str


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan and its grounds. Times in milliseconds; NaN-free. fit: of the all-reduce costs it was computed from."""

    plan: BucketPlan
    place: Place
    fit: CostFit
    predicted_exposed_ms: float
    predicted_backward_ms: float


def save_plan(path: str | os.PathLike[str], record: PlanRecord) -> None:
    """Write `record`. Raises PlanFileError if it cannot be written; what was there before then still is."""
    body = _body(record)
    text = json.dumps({"kind": KIND, "version": VERSION, "digest": _digest(body), **body}, indent=1)
    target = Path(path)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.resolve().parent)
        with os.fdopen(handle, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise PlanFileError("the plan file cannot be written", where=str(path), got=str(error)) from error


def _body(record: PlanRecord) -> dict[str, Any]:
    buckets = record.plan.buckets
    return {
        "plan_hash": record.plan.hash,
        "place": asdict(record.place),
        "parameters": [[s.name, list(s.shape), b.dtype] for b in buckets for s in b.slots],
        "boundaries": [b.names[-1] for b in buckets],
        "fit": asdict(record.fit),
        "predicted_exposed_ms": record.predicted_exposed_ms,
        "predicted_backward_ms": record.predicted_backward_ms,
        "plan": json.loads(to_text(record.plan)),
    }


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def load_plan(path: str | os.PathLike[str]) -> PlanRecord:
    """The record in a file. Raises PlanFileError naming what is wrong with it."""
    return parse_plan(read_plan_text(path), str(path))


def read_plan_text(path: str | os.PathLike[str]) -> str:
    """The file's text. Raises PlanFileError if it cannot be read."""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise PlanFileError("the plan file cannot be read", where=str(path), got=str(error)) from error


def parse_plan(text: str, where: str) -> PlanRecord:
    """The record that `text` is. where: the file's name, for messages."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise _broken("is truncated or no JSON", where, str(error)) from error
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise _broken("is not one of ours", where, f"kind {data.get('kind') if isinstance(data, dict) else data!r}")
    if data.get("version") != VERSION:
        raise _broken("has another version", where, f"{data.get('version')}, expected {VERSION}")
    body = {k: v for k, v in data.items() if k not in ("kind", "version", "digest")}
    if _digest(body) != data.get("digest"):
        raise _broken("was changed or damaged: its digest does not fit its contents", where, "")
    try:
        plan = plan_from_data(data["plan"])
        fit = CostFit(
            tuple(CostPiece(**p) for p in data["fit"]["pieces"]), tuple(CostPoint(**p) for p in data["fit"]["points"])
        )
        predicted = float(data["predicted_exposed_ms"]), float(data["predicted_backward_ms"])
        return PlanRecord(plan, Place(**data["place"]), fit, *predicted)
    except (PlanError, KeyError, TypeError, ValueError) as error:
        raise _broken("holds no usable plan", where, str(error)) from error


def _broken(how: str, where: str, got: str) -> PlanFileError:
    return PlanFileError(f"the plan file {how}", where=where, got=got, remedy="run `distcompile tune` again")


def check_fits(record: PlanRecord, parameters: Iterable[ReadyParameter], place: Place, where: str) -> None:
    """Raise PlanFileMismatchError naming what of model, world, transport or hosts is not the file's."""
    theirs = {slot.name: (slot.shape, bucket.dtype) for bucket in record.plan.buckets for slot in bucket.slots}
    ours = {p.name: (p.shape, p.dtype.name) for p in parameters}
    found = []
    for what, names in (
        ("only in the file", [n for n in theirs if n not in ours]),
        ("only in this model", [n for n in ours if n not in theirs]),
    ):
        if names:
            found.append(f"parameters {what}: {_some(names)}")
    changed = [n for n in theirs if n in ours and theirs[n] != ours[n]]
    found += [f"{n} is {_text(ours[n])} here and {_text(theirs[n])} in the file" for n in changed[:NAMED]]
    for name in ("world_size", "transport", "hosts"):
        mine, its = getattr(place, name), getattr(record.place, name)
        if mine != its:
            found.append(f"{name} is {mine} here and {its} in the file")
    if found:
        raise PlanFileMismatchError(
            "the plan file was made for something else",
            where=where,
            got="; ".join(found),
            remedy='run `distcompile tune` here, or pass bucket_plan="auto"',
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _text(kind: tuple[tuple[int, ...], str]) -> str:
    return f"{kind[1]}{list(kind[0])}"
