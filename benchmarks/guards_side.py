"""One side of guards.py: what a compiled function costs beside its arithmetic, written once for both frameworks.

In: a line of JSON a question: {"do": "list"}, {"do": "start", "row": name}, {"do": "sample"}. Out: a line of JSON each.
A check is the one that a framework makes before it uses what it has compiled, called by itself. A capture is the first
call of a function of so many lines, compiled with the backend "eager": each sample's is a copy, with code of its own.
What a row does besides
(changing an attribute) is timed in the same sample, and taken off.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from eager_side import sample
from framework import NAME, identity, nn, torch
from models import GPT

Call = Callable[[], Any]


def nothing() -> None:
    """No work beside the row's."""


@dataclass(frozen=True)
class Row:
    """call: what is timed. beside: the part of it that does not count."""

    call: Call
    beside: Call = nothing


def sum_of_products(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any) -> Any:
    return a * b + c * d + e * f + g * h + i * j


def ten(requires_grad: bool) -> list[Any]:
    return [torch.randn(8).requires_grad_(requires_grad) for _ in range(10)]


def call_rows() -> dict[str, Row]:
    compiled = torch.compile(sum_of_products)
    plain, leaves, ones = ten(False), ten(True), torch.ones(8)
    compiled(*plain)
    compiled(*leaves)
    return {
        "call of 10 tensors": Row(lambda: compiled(*plain)),
        "call of 10 tensors, recorded": Row(lambda: compiled(*leaves)),
        "call of 10 tensors fb": Row(lambda: compiled(*leaves).backward(ones)),
    }


def hooked_gpt() -> Any:
    """A GPT of 12 layers: 150 parameters, and a hook on each block."""
    model = GPT(12, 32, 2, 8, 16)
    model.head = nn.Linear(32, 16)
    for block in model.blocks:
        block.register_forward_hook(lambda module, args, out: None)
    return model


def check_of(model: Any, *args: Any, dynamic: bool = False) -> Call:
    """The guard check of `model`, compiled for `args`. Hooks are guarded."""
    if NAME == "torch":
        return check_of_peer(model, *args, dynamic=dynamic)
    compiled = torch.compile(model, backend="eager", dynamic=dynamic)
    compiled(*args)
    ((check, _),) = compiled._state.root.entries
    return lambda: check(args, {})


def check_of_peer(model: Any, x: Any, y: Any, *, dynamic: bool) -> Call:
    torch._dynamo.config.skip_nnmodule_hook_guards = False
    torch.compile(model, backend="eager", dynamic=dynamic)(x, y)
    entry, *_ = torch._dynamo.eval_frame._debug_get_cache_entry_list(GPT.forward.__code__)  # the newest
    variables = {"self": model, "x": x, "y": y}
    return lambda: entry.guard_manager.check(variables)


def check_rows() -> dict[str, Row]:
    model, other = hooked_gpt(), nn.Linear(2, 2)
    x, y = (torch.randint(0, 16, (2, 8)) for _ in "xy")
    check = check_of(model, x, y)

    def change() -> None:
        other.extra = object()

    def change_and_check() -> Any:
        other.extra = object()
        return check()

    sized = check_of(hooked_gpt(), x, y, dynamic=True)
    for found in (check(), sized()):
        if found is False or (isinstance(found, int) and NAME != "torch"):
            raise SystemExit("the guards that are to be timed do not hold")
    return {
        "check of a GPT, 150 parameters": Row(check),
        "check of a GPT whose sizes are symbols": Row(sized),
        "check of a GPT after another module changed": Row(change_and_check, change),
    }


def lines(count: int) -> FunctionType:
    """A function of so many lines: arithmetic, and calls of `torch`."""
    body = [f"    x = x * 1.5 + {i}.5" if i % 2 else "    x = torch.sin(x)" for i in range(count)]
    made: dict[str, Any] = {"torch": torch}
    exec("\n".join(["def straight(x):", *body, "    return x"]), made)
    function: FunctionType = made["straight"]
    return function


def capture_rows() -> dict[str, Row]:
    x = torch.ones(4)

    def row(count: int) -> Row:
        function = lines(count)
        code, names = function.__code__, function.__globals__
        return Row(lambda: torch.compile(FunctionType(code.replace(), names), backend="eager")(x))

    return {f"capture of {count:,} lines": row(count) for count in (250, 500, 1000, 2000)}


def main() -> None:
    print(json.dumps(identity()), flush=True)
    torch.manual_seed(0)
    rows = {**call_rows(), **check_rows(), **capture_rows()}
    row, counts = next(iter(rows.values())), [1, 1]
    for question in map(json.loads, sys.stdin):
        answer: dict[str, Any] = {"rows": list(rows)}
        if question["do"] == "start":
            row, counts = rows[question["row"]], [1, 1]
            for _ in range(8):
                counts = [sample(call, count)[1] for call, count in zip((row.call, row.beside), counts)]
            answer = {"started": question["row"]}
        elif question["do"] == "sample":
            (whole, counts[0]), (beside, counts[1]) = sample(row.call, counts[0]), sample(row.beside, counts[1])
            answer = {"seconds": whole - beside}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
