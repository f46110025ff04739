"""Whether a random Python program does compiled, or in the machine, what it does in plain Python.

In: a `Program`. Out: "" or the first difference of what four calls in a row returned, raised, printed, and left in
arguments, globals, classes, modules and gradients. `python -m tests.fuzz.python_check FIRST COUNT` looks for failing
seeds; with one number it shows that seed's program, made small. `rich`: programs of python_rich.py;
`pure`: without tensors, in the machine; `breaks`: with graph breaks in what they call.
"""

from __future__ import annotations

import contextlib
import functools
import io
import random
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import distcompile as torch
from compiler_core.bytecode.binding import make_frame
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.native import NativeSemantics
from compiler_core.errors import DistCompileError, GraphBreak
from tests.fuzz.program_tree import Node, minimise
from tests.fuzz.python_programs import Program, write
from tests.fuzz.python_rich import write_rich
from tests.programs.harness import Seen, difference

SAME_AGAIN = ((0, 0, 1, 0), (0, 1, 2, 0), (0, 0, 1, 2), (0, 1, 0, 2))  # which numbers each call gets
CALLS = 4
STATE = ("LOG", "G", "GL", "GD", "CELLS", "items", "table", "obj", "GT", "TD", "MEMO", "x", "y", "net", "deep")
RICH = ("DQ", "DD", "OD", "POINT", "SLOT", "OWNER", "PALETTE", "COUNTS", "CHAIN", "STACK", "HISTORY", "KEPT", "STATS")
BREAKS = {"note", "decorated", "textual", "quiet"}
NO_BACKWARD, REFUSED = "no backward", "backward refused"
Compile = Callable[[Any], Any]


class TooLong(Exception):
    """A program that a smaller text has made endless."""


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def plain(fn: Any) -> Any:
    return fn


def compiled(fn: Any) -> Any:
    return torch.compile(fn, backend="eager")


def with_breaks(fn: Any) -> Any:
    """`fn` compiled, with graph breaks in what it calls: within loops, `with`, `try`, and frames that called others."""
    names = fn.__globals__
    for name in names.keys() & BREAKS:
        names[name] = torch.compiler.disable(names[name])
    return compiled(fn)


def refused_or_compiled(fn: Any) -> Any:
    """`fn` in one graph; where fullgraph=True refuses, by Python: the refused call must have left nothing behind."""
    whole = torch.compile(fn, backend="eager", fullgraph=True)

    def run(*args: Any) -> Any:
        with contextlib.suppress(GraphBreak):
            return whole(*args)
        return fn(*args)

    return run


def interpreted(fn: Any) -> Any:
    """`fn`, run by the machine: nested Python calls too."""
    return lambda *args: Machine(NativeSemantics(inline=True)).run([make_frame(fn, args, {})])


def arguments(program: Program, names: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Those of each call: numbers change and come back, so that calls are replayed too; tensors change; containers and
    the object stay the same."""
    rng = random.Random(program.seed)
    items, table, obj = [3, 1, 2], {"a": 1, "b": 2}, names["Thing"](3)
    x = torch.arange(3.0) if program.tensors else None
    numbers = [(rng.randint(0, 4), rng.random() < 0.5, rng.choice(["a", "bc", "a", "zzz"])) for _ in range(CALLS)]
    for k, (n, flag, s) in enumerate(map(numbers.__getitem__, rng.choice(SAME_AGAIN))):
        if program.tensors and k != 1:
            x = torch.tensor([rng.choice([-1.5, 0.5, 2.0, 1.0]) for _ in range(3)])
        y = torch.tensor([0.5, -0.5, 1.0]) * (k % 3) if program.tensors else None
        yield x, y, n, flag, items, table, obj, s


def backward(result: Any) -> str:
    """Backward from the first result that has a gradient, and how that went."""
    parts = result if isinstance(result, tuple) else (result,)
    found = next((r for r in parts if isinstance(r, torch.Tensor) and r.requires_grad and not r.is_leaf), None)
    if found is None:
        return NO_BACKWARD
    try:
        found.sum().backward()
    except RuntimeError:
        return REFUSED
    return "backward done"


def trace(program: Program, source: str, compile: Compile) -> list[Any]:
    """What can be seen of all calls, frozen."""
    names: dict[str, Any] = {"__name__": "tests.fuzz.generated", "torch": torch}
    exec(builtin_code(source, program.seed), names)
    run, seen, text = compile(names["program"]), Seen(torch), io.StringIO()
    torch.manual_seed(0)
    found = []
    with contextlib.redirect_stdout(text):
        for args in arguments(program, names):
            result = call(run, args)
            found += [seen.observe(result), backward(result)]
            found += [seen.observe(args), seen.observe([names.get(name) for name in (*STATE, *RICH)]), text.getvalue()]
            found.append(seen.observe([names["Thing"].count, getattr(names.get("net"), "__dict__", {}).get("count")]))
    return found


@functools.lru_cache(2)  # it runs plain, then compiled
def builtin_code(source: str, seed: int) -> types.CodeType:
    return compile(source, f"<program {seed}>", "exec")


def call(run: Any, args: tuple[Any, ...]) -> Any:
    try:
        return run(*args)
    except TooLong:
        raise
    except Exception as error:  # noqa: BLE001 - whichever it is, is the observation
        return ("raised", type(error).__name__, "" if isinstance(error, DistCompileError) else str(error))


def judge(program: Program, source: str, compile: Compile) -> str:
    """The difference; "" if there is none, or if plain Python itself cannot run the program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with limited(10):
                expected = trace(program, source, plain)
        except Exception:  # noqa: BLE001 - a text that `minimise` has made senseless
            return ""
        try:
            with limited(20):
                actual = trace(program, source, compile)
        except TooLong:
            return "does not end"
        except Exception as error:  # noqa: BLE001 - a value that cannot even be looked at
            return f"left behind what raises {type(error).__name__}: {error}"
        finally:
            torch.set_grad_enabled(True)
    end = next((k for k, value in enumerate(expected) if isinstance(value, str) and value == REFUSED), None)
    if end is not None:  # eager autograd minds a write that a graph does not
        expected, actual = expected[: end - 1], actual[: end - 1]
    return difference(actual, expected)


def source_of(nodes: list[Node], program: Program) -> str:
    """The source of what `minimise` made of `program.nodes()`."""
    blocks = {head: inner for node in nodes for head, inner in node.parts}
    less = Program(program.seed, blocks.get("# prelude") or [], blocks.get("# body") or [], program.tensors)
    return less.source()


def shrink(program: Program, compile: Compile) -> str:
    """The source of a small program that differs too."""
    small = minimise(program.nodes(), lambda nodes: bool(judge(program, source_of(nodes, program), compile)))
    return source_of(small, program)


def report(seed: int, tensors: bool, compile: Compile, write: Callable[[int, bool], Program] = write) -> str:
    """ "" if the seed's program is right; else what a test says of it."""
    program = write(seed, tensors)
    found = judge(program, program.source(), compile)
    if not found:
        return ""
    small = shrink(program, compile)
    return f"seed {seed}{'' if tensors else ', no tensors'}: {found}\n{small}\n{judge(program, small, compile)}"


def main(first: int, count: int = 0) -> None:
    tensors, writes = "pure" not in sys.argv, write_rich if "rich" in sys.argv else write
    how = interpreted if not tensors else with_breaks if "breaks" in sys.argv else compiled
    if not count:
        print(report(first, tensors, how, writes) or "no difference")
        return
    failed = 0
    for seed in range(first, first + count):
        program = writes(seed, tensors)
        found = judge(program, program.source(), how)
        if found:
            failed += 1
            print(f"seed {seed}: {found[:200]}", flush=True)
    print(f"{failed} of {count} differ")


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:] if a.isdigit()))
