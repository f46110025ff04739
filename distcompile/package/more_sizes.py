"""An instance of a package for sizes that it was not compiled for: its code, with other numbers in its tables.

In: a package's graph and codes, the shapes of a call. Out: an instance of one of these codes. Nothing is captured;
the graph is lowered to C++ text for these sizes, as it was for those of the package, and the text is compared with that
of the codes (codegen/cpp/many_sizes.py). Where it is another, it is compiled now, which is said; without a
compiler: None.
Raises: ShapeError for sizes that the program does not take.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler_core import log
from compiler_core.aot import branch, loop  # they register ops
from compiler_core.errors import CompilerNotFoundError
from compiler_core.graph.input_sizes import numbers_of
from compiler_core.graph.ir import Graph
from compiler_core.graph.parse import parse_graph, parse_size
from compiler_core.graph.sizes import symbols_of
from compiler_core.runtime.onednn import told_of
from compiler_core.symbolic.size import Sym
from distcompile.package.compiling import Made, built, callbacks_of, code_digest, opened_at
from distcompile.package.container import dtype_name
from distcompile.package.native import ArrayRow, InstanceRow, NativeInstance, load_code

assert branch
assert loop
_KEY = ((3,),)  # the shape of the key of draws


class _Layout(ctypes.Structure):
    _fields_ = [("ndim", ctypes.c_int64), ("dims", ctypes.c_int64 * 6), ("strides", ctypes.c_int64 * 6)]


class _Convolution(ctypes.Structure):
    """dcpkg_convolution, of distcompile_package.h."""

    _fields_ = [
        ("of_input", ctypes.c_int64),
        ("nspatial", ctypes.c_int64),
        *((name, ctypes.c_int64 * 3) for name in ("stride", "dilation", "low", "high")),
        *((name, _Layout) for name in ("src", "weights", "dst")),
    ]


def instance_of(
    manifest: Mapping[str, Any], instances: Sequence[NativeInstance], shapes: tuple[tuple[int, ...], ...], base: int
) -> NativeInstance | None:
    """See the head of this file. base: the address of the file's data."""
    graph = parse_graph(manifest["graph"])
    given = shapes + _KEY if manifest.get("draws") else shapes
    held = [tuple(node.shape) for node in graph.inputs][: len(graph.inputs) - len(given)]
    numbers = numbers_of(graph, [*held, *given])
    symbols = {symbol.name: symbol for symbol in symbols_of(graph)}
    opened = [{symbols[name]: number for name, number in sizes.items()} for sizes in manifest["opened"]]
    made = opened_at(graph, opened, numbers)[-1]
    digest = code_digest(made.units)
    like = next((one for one in instances if manifest["codes"][one.code] == digest), None)
    library = like.library if like is not None else _built_now(made, shapes)
    if library is None:
        return None
    first = instances[0] if like is None else like
    results = [_result(one, numbers, graph) for one in first.results]
    return NativeInstance(library, _row(library, first, made, base), results, first.code, callbacks_of(made.entry))


def _built_now(made: Made, shapes: Sequence[tuple[int, ...]]) -> ctypes.CDLL | None:
    """The code, where there is a compiler."""
    try:
        code = built(made.units, ())
    except CompilerNotFoundError:
        return None
    what = f"a package is compiled now for sizes that it has no code for: {', '.join(map(str, shapes))}"
    log.warn_once(what, f"{what}; aot_compile(program, path, sizes=[...]) compiles for them ahead of time")
    return load_code(code)


def _result(one: Mapping[str, Any], numbers: Mapping[Any, int], graph: Graph) -> Mapping[str, Any]:
    if "size" not in one:
        return one
    size = parse_size(one["size"], symbols_of(graph))
    return {**one, "value": size.at(numbers.__getitem__) if isinstance(size, Sym) else size}


def _row(library: ctypes.CDLL, like: NativeInstance, made: Made, base: int) -> InstanceRow:
    """dcpkg_instance."""
    entry, graph, row, kept = made.entry, made.graph, InstanceRow(), list[Any]()

    def array(kind: Any, values: Sequence[Any]) -> Any:
        kept.append((kind * max(len(values), 1))(*values))
        return kept[-1]

    def arrays(metas: Sequence[Any], rows: Any) -> Any:
        found = []
        for k, meta in enumerate(metas):
            nbytes = meta.numel * meta.dtype.numpy.itemsize
            shape, dtype = array(ctypes.c_int64, meta.shape), dtype_name(meta.dtype.numpy).encode()
            found.append(ArrayRow(rows[k].name, dtype, len(meta.shape), shape, nbytes, rows[k].kind, rows[k].place))
        return array(ArrayRow, found)

    row.entry = ctypes.cast(getattr(library, entry.symbol), ctypes.c_void_p)
    row.inputs = arrays([node.meta for node in graph.inputs], like.raw.inputs)
    row.outputs = arrays([node.meta for node in graph.outputs], like.raw.outputs)
    row.ninputs, row.noutputs, row.nconstants = len(graph.inputs), len(graph.outputs), len(made.constants)
    own = [np.ascontiguousarray(constant) for constant in made.constants]
    kept.append(own)
    places = [ArrayRow(b"", b"", 0, array(ctypes.c_int64, []), a.nbytes, 1, a.ctypes.data - base) for a in own]
    row.constants = array(ArrayRow, places)
    row.arena_nbytes, row.scratch_nbytes = entry.arena_nbytes, entry.scratch_nbytes
    row.numbers = array(ctypes.c_int64, entry.numbers)
    row.symbols = array(ctypes.c_char_p, [f"scipy_{name}".encode() for name in entry.symbols])
    row.nsymbols, row.ncallbacks = len(entry.symbols), len(entry.callbacks)
    row.convolutions = ctypes.cast(array(_Convolution, [_convolution(call) for call in entry.planned]), ctypes.c_void_p)
    row.nconvolutions = len(entry.planned)
    messages = array(ctypes.c_char_p, [message.encode() for message in entry.messages])
    row.messages, row.nmessages = ctypes.cast(messages, ctypes.c_void_p), len(entry.messages)
    row.kept = kept
    return row


def _convolution(call: Any) -> _Convolution:
    one, row = told_of(call), _Convolution()
    row.of_input, row.nspatial = one.of_input, len(one.stride)
    for name in ("stride", "dilation", "low", "high"):
        values = getattr(one, name)
        getattr(row, name)[: len(values)] = values
    for name in ("src", "weights", "dst"):
        dims, strides = getattr(one, name)
        layout = getattr(row, name)
        layout.ndim, layout.dims[: len(dims)], layout.strides[: len(strides)] = len(dims), dims, strides
    return row
