"""What a package's code says of its instances, as C++ compiled with it (types: include/distcompile_package.h).

In: instances: the entry point, its arrays with their places in the file, what it needs. Out: the unit `package`: the
interface, the declarations of entries, the tables, and runtime.cpp behind them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_core.runtime.executor import EntryPoint
from compiler_core.runtime.onednn import Told, told_of

_HERE = Path(__file__).parent
INTERFACE = _HERE.parent / "include" / "distcompile_package.h"


@dataclass(frozen=True, slots=True)
class Placed:
    """dcpkg_array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    kind: int
    place: int


@dataclass(frozen=True, slots=True)
class Tabled:
    """One instance. entry: what the generated function expects."""

    entry: EntryPoint
    inputs: Sequence[Placed]
    constants: Sequence[Placed]
    outputs: Sequence[Placed]


def unit(instances: Sequence[Tabled]) -> str:
    """The C++ of the unit."""
    lines = ["#define DCPKG_ABI_ONLY", INTERFACE.read_text()]
    for symbol in dict.fromkeys(one.entry.symbol for one in instances):
        lines.append(f'extern "C" int32_t {symbol}(void**, char*, const void* const*, const dcpkg_events*);')
    rows = [_instance(k, one, lines) for k, one in enumerate(instances)]
    lines += [
        "static const dcpkg_instance dcpkg_all[] = {",
        *(rows or ["{}"]),
        "};",
        f"enum {{ DCPKG_COUNT = {len(rows)} }};",
    ]
    return "\n".join([*lines, (_HERE / "runtime.cpp").read_text()])


def _instance(number: int, one: Tabled, lines: list[str]) -> str:
    entry, stem = one.entry, f"dcpkg_{number}"
    arrays = [
        _arrays(f"{stem}_{word}", found, lines)
        for word, found in (("inputs", one.inputs), ("constants", one.constants), ("outputs", one.outputs))
    ]
    numbers = _table("int64_t", f"{stem}_numbers", map(_word, entry.numbers), lines)
    symbols = _table("char* const", f"{stem}_symbols", (_text(f"scipy_{name}") for name in entry.symbols), lines)
    messages = _table("char* const", f"{stem}_messages", map(_text, entry.messages), lines)
    planned = _table("dcpkg_convolution", f"{stem}_planned", (_convolution(told_of(c)) for c in entry.planned), lines)
    counts = [len(found) for found in (one.inputs, one.constants, one.outputs)]
    fields = [entry.symbol, *arrays, *counts, entry.arena_nbytes, entry.scratch_nbytes, numbers]
    fields += [
        symbols,
        len(entry.symbols),
        len(entry.callbacks),
        planned,
        len(entry.planned),
        messages,
        len(entry.messages),
    ]
    return f"  {{{', '.join(map(str, fields))}}},"


def _arrays(name: str, arrays: Sequence[Placed], lines: list[str]) -> str:
    for k, array in enumerate(arrays):
        _table("int64_t", f"{name}_{k}", map(_word, array.shape), lines)
    rows = (
        f"{{{_text(a.name)}, {_text(a.dtype)}, {len(a.shape)}, {name}_{k}, {a.nbytes}, {a.kind}, {a.place}}}"
        for k, a in enumerate(arrays)
    )
    return _table("dcpkg_array", name, rows, lines)


def _table(kind: str, name: str, rows: Iterable[str], lines: list[str]) -> str:
    """An array of constants, which is never empty."""
    lines.append(f"static const {kind} {name}[] = {{{', '.join(rows) or '{}'}}};")
    return name


def _convolution(one: Told) -> str:
    lists = ", ".join(_list(values, 3) for values in (one.stride, one.dilation, one.low, one.high))
    layouts = ", ".join(
        f"{{{len(dims)}, {_list(dims, 6)}, {_list(strides, 6)}}}" for dims, strides in (one.src, one.weights, one.dst)
    )
    return f"{{{int(one.of_input)}, {len(one.stride)}, {lists}, {layouts}}}"


def _list(values: Sequence[int], length: int) -> str:
    return f"{{{', '.join(map(str, [*values, *[0] * (length - len(values))]))}}}"


def _word(value: int) -> str:
    """A word of 64 bits, the least of all too."""
    return f"(int64_t){value & 0xFFFFFFFFFFFFFFFF:#x}ull"


def _text(value: str) -> str:
    return json.dumps(value)
