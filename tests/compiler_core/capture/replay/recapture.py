"""Capture again: an oracle for "a guard that passes implies the same capture".

In: code that calls compiled functions within `watching()`. Out: `Oracle.differences`: for every call whose guards
passed, how a fresh capture of the very same call would differ from the entry that ran: graph, inputs and where they
come from, recipe of effects and results, writes, modes, and where it ends. `Oracle.after(change)` asks the same of the
last call, made once more after `change()`.
Method: the capture happens in a child made by fork, which has the same objects at the same addresses and of whose
effects nobody hears; it tells what differs through a pipe, and ends. The child begins with what earlier captures had
taught the place when the entry was made (`Memory`), since more of that makes another, equally right graph.
"""

from __future__ import annotations

import contextlib
import gc
import io
import linecache
import os
import re
import select
import signal
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from compiler_core.capture.captured import Captured
from compiler_core.capture.capturing import Broke, Capture, Returned
from compiler_core.capture.compiled.sized import Entry
from compiler_core.capture.guards.guards import is_plain
from compiler_core.capture.lessons import Memory
from compiler_core.capture.points import Point
from compiler_core.graph.ir import Graph
from compiler_core.graph.print import print_graph
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor

LONGEST_S = 60
LONGEST_TEXT = 4000  # characters that fit the pipe at once
HOOK = re.compile(r"(?<='hooks': )\{\d+: ")  # hooks are numbered as they are registered


@dataclass(frozen=True)
class Record:
    """A capture: what it made, how it ended, what the place had learnt before it."""

    captured: Captured
    end: str
    lessons: Memory
    source: str  # of the recipe


class Done(BaseException):
    """A capture in the child is over."""


class Oracle:
    """See the head of this file. asked: how many calls were captured again."""

    def __init__(self) -> None:
        self.differences: list[str] = []
        self.asked = 0
        self.records: dict[int, Record] = {}
        self.last: tuple[Point, tuple[Any, ...], dict[str, Any]] | None = None
        self.handed: list[Any] = []  # in the child: what the check of the capture that was made would hand over
        self.is_child = False
        self._run, self._close, self._init = Point.run, Capture._close, Capture.__init__

    # -- in place of methods of Point and Capture

    def run(self, point: Point, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.is_child:
            found = self.in_child(lambda: self.compare(point, args, kwargs)) if point.entries else ""
            if found:
                self.differences.append(f"{point.owner.name}: {found}")
        if not self.is_child and point.is_root:
            self.last = point, args, kwargs
        return self._run(point, args, kwargs)

    def begin(self, capture: Capture, point: Point, args: Any, kwargs: Any, *refused: Any) -> None:
        capture.lessons = copied(point.memory)  # type: ignore[attr-defined]
        self._init(capture, point, args, kwargs, *refused)

    def close(self, capture: Capture, ended: Any) -> Any:
        captured, survivors = self._close(capture, ended)
        end = "it raises" if not isinstance(ended, (Returned, Broke)) else "it returns"
        if isinstance(ended, Broke):
            end = f"it breaks off: {ended.why.reason}, at {ended.where}"
        if not capture.repeats:
            end += ", and cannot be repeated"
        source = "".join(linecache.cache[captured.rebuild.__code__.co_filename][2])  # type: ignore[attr-defined]
        record = Record(captured, end, capture.lessons, source)  # type: ignore[attr-defined]
        if self.is_child:
            self.handed, self.made = list(capture.segment.code.values), record  # the segment is cleared
            raise Done
        self.records[id(captured)] = record
        return captured, survivors

    # -- asking

    def after(self, change: Callable[[], Any]) -> str:
        """How the last call's capture would differ, were it made once more after `change()`: "" if the guards fail, or
        it would not. Nothing is changed here."""
        assert self.last is not None
        point, args, kwargs = self.last

        def ask() -> str:
            try:
                change()
            except Exception:  # noqa: BLE001 - what cannot be changed so
                return ""
            return self.compare(point, args, kwargs)

        return self.in_child(ask)

    def in_child(self, ask: Callable[[], str]) -> str:
        """What `ask` says in a child of this process."""
        self.asked += 1
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 3.12 warns of threads, which the child does not need
            child = os.fork()
        if child == 0:
            gc.disable()  # it would touch, and so copy, every page
            self.is_child = True
            text = answer(ask)
            os.write(writing, text[:LONGEST_TEXT].encode(errors="replace"))
            os._exit(0)
        os.close(writing)
        try:
            if not select.select([reading], [], [], LONGEST_S)[0]:
                os.kill(child, signal.SIGKILL)
                return "the capture in the child does not end"
            return os.read(reading, 4 * LONGEST_TEXT).decode()
        finally:
            os.close(reading)
            os.waitpid(child, 0)

    def compare(self, point: Point, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """In the child: the difference between the entry whose guards pass, if one's do, and a capture now."""
        for check, entry in point.entries:
            found = check(args, kwargs)
            if not isinstance(found, int):
                return self.capture_again(point, entry, found, args, kwargs)
        return ""

    def capture_again(self, point: Point, entry: Entry, found: Any, args: Any, kwargs: Any) -> str:
        before = self.records[id(entry.captured)]
        point.memory = copied(before.lessons)
        with contextlib.suppress(Done):
            Capture(point, args, kwargs).run()
        handed = self.handed
        values, now = list(found[0]), inputs_now(self.made.captured, handed)
        return (
            difference(facts(before, same_ones(values), found[1]), facts(self.made, same_ones(now), handed))
            or difference_of_values(
                "what the check hands over",
                distinct(without_clocks(before, found[1])),
                distinct(without_clocks(self.made, handed)),
            )
            or difference_of_values("the inputs", distinct(values), distinct(now))
        )


def answer(ask: Callable[[], str]) -> str:
    """What `ask` says, or raises."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return ask()
        except BaseException:  # noqa: BLE001 - nothing may leave the child
            return f"asked, it raises\n{traceback.format_exc()[-LONGEST_TEXT:]}"


def copied(memory: Memory) -> Memory:
    """What is known now, apart from what is learnt later."""
    same = copy(memory)
    for name, value in vars(memory).items():
        setattr(same, name, copy(value))
    same.unstable._things = dict(memory.unstable._things)
    return same


def facts(record: Record, names: list[str], handed: Sequence[Any]) -> dict[str, Any]:
    """What must be the same of two captures. names: of the graph's inputs. handed: over by the check."""
    captured = record.captured
    recipe = dict(sorted(captured.rebuild.__globals__.items()))  # type: ignore[attr-defined]
    recipe.pop("__builtins__", None)
    outputs = captured.outputs
    return {
        "end": record.end,
        "graph": graph_text(captured.graph, names),
        "rules of gradients": [rule_text(node.attrs["rule"]) for node in captured.graph.calls if "rule" in node.attrs],
        "sources of inputs": dict(zip(names, (of_lift(lift, handed) for lift in captured.inputs))),
        "recipe": recipe_text(record.source, handed),
        "objects of the recipe": recipe,
        "results": outputs.results,
        "origins": [of_known(known, handed) for known in outputs.origins],
        "rebindings": [
            (of_known(r.known, handed), r.result, r.moves, r.history, r.viewed, r.requires_grad)
            for r in outputs.rebindings
        ],
        "writes": [(of_lift(written, handed), written.count) for written in captured.written],
        "random": captured.random,
        "owners of gradients": captured.gradient_owners,
        "modes": captured.ambient,
        "operations": captured.operations,
    }


def graph_text(graph: Graph, names: list[str]) -> str:
    """The graph with these names for its inputs, without its own, and without what nothing is computed from."""
    lines = [f"{name}: {node.meta} {node.role}" for name, node in zip(names, graph.inputs)]
    live, todo = set(), list(graph.outputs)
    while todo:
        node = todo.pop()
        if node.name not in live:
            live.add(node.name)
            todo += getattr(node, "args", ())
    dead = tuple(f"  %{node.name}:" for node in graph.nodes if node.name not in live)
    own = (f"graph {graph.name}(", *dead)
    body = "\n".join(line for line in print_graph(graph).splitlines() if not line.startswith(own))
    for name, node in zip(names, graph.inputs):
        body = re.sub(rf"%{re.escape(node.name)}\b", name, body)
    return "\n".join([*dict.fromkeys(lines), body])


def rule_text(rule: Any) -> str:
    """What a rule does, if that was traced."""
    return print_graph(rule.graph) if hasattr(rule, "graph") else str(rule)


def recipe_text(source: str, handed: Sequence[Any]) -> str:
    """The recipe, in which objects that it is handed twice have one name."""
    places: dict[int, int] = {}
    names = [places.setdefault(id(value), len(places)) for value in handed]
    source = re.sub(r"outside\[(\d+)\]", lambda match: f"outside {names[int(match[1])]}", source)
    return HOOK.sub("{hook: ", source)


def same_ones(values: list[Any]) -> list[str]:
    """A name for each input: that of the first that is the same array. Which of two names of one tensor the code reads
    it by is no matter."""
    return [f"input {next(k for k, other in enumerate(values) if shares(other, value))}" for value in values]


def shares(a: Any, b: Any) -> bool:
    """Whether two arrays, or other objects, are one."""
    both = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.size > 0
    return a is b or (both and a.__array_interface__ == b.__array_interface__)


def without_clocks(record: Record, handed: Sequence[Any]) -> list[Any]:
    """What is handed over, but the time, which is another whenever it is asked for."""
    names = record.captured.guards.outside
    return ["the time" if name.startswith("clock_at_") else value for name, value in zip(names, handed, strict=True)]


def distinct(values: Sequence[Any]) -> list[Any]:
    """Each once."""
    return [value for place, value in enumerate(values) if all(not shares(value, other) for other in values[:place])]


def of_known(known: Any, handed: Sequence[Any]) -> Any:
    """The tensor that this stands for in the call that hands these over."""
    return None if known is None else known.now(handed)


def of_lift(lift: Any, handed: Sequence[Any]) -> Any:
    """What a placeholder reads, or a write writes, and whether it takes a gradient."""
    return None if lift is None else (lift.now(handed), getattr(lift, "takes_gradient", False))


def difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The first fact that differs."""
    for name, value in old.items():
        if not alike(value, new[name]):
            return f"{name} differs\n--- the entry's\n{shown(value)}\n--- captured again\n{shown(new[name])}"
    return ""


def difference_of_values(what: str, old: Any, new: Any) -> str:
    if len(old) != len(new):
        return f"{what}: {len(old)} values against {len(new)}"
    for place, (a, b) in enumerate(zip(old, new)):
        if not alike(a, b):
            return f"{what}: at {place} {shown(a)} against {shown(b)}"
    return ""


def shown(value: Any) -> str:
    return value if isinstance(value, str) else object.__repr__(value) if hasattr(value, "_cell") else repr(value)


def inputs_now(captured: Captured, handed: Sequence[Any]) -> list[Any]:
    return [None if lift is None else lift.now(handed).current() for lift in captured.inputs]


def alike(a: Any, b: Any) -> bool:
    """Whether two objects, each of one capture, are the same one, or made alike."""
    if a is b:
        return True
    if type(a) is not type(b):
        return isinstance(a, Cell) and isinstance(b, Cell) and alike(a.current(), b.current())
    if isinstance(a, Cell):
        return alike(a.current(), b.current())
    if isinstance(a, Tensor):
        return alike(a._cell, b._cell)
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(alike(*pair) for pair in zip(a.items(), b.items()))
    if is_plain(a):
        return repr(a) == repr(b)
    if isinstance(a, types.FunctionType):
        return a.__code__ == b.__code__
    if isinstance(a, Sym):  # each of its own capture
        return str(a) == str(b)
    if is_dataclass(a) and not isinstance(a, type) and a.__dataclass_params__.eq:  # type: ignore[attr-defined]
        return all(alike(getattr(a, part.name), getattr(b, part.name)) for part in fields(a) if part.compare)
    if isinstance(a, type):
        return (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)
    return bool(a == b)


@contextlib.contextmanager
def watching() -> Iterator[Oracle]:
    """Every call of a compiled function within is captured again, if a guard passes."""
    oracle = Oracle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Point, "run", lambda *args: oracle.run(*args))
        patch.setattr(Capture, "__init__", lambda *args: oracle.begin(*args))
        patch.setattr(Capture, "_close", lambda *args: oracle.close(*args))
        yield oracle
