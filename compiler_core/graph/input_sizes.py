"""The numbers that the inputs of a graph give its symbols.

In: a graph of symbolic sizes and the shape of each input. Out: `numbers_of`: a number for each of its symbols.
Raises: ShapeError where two dims disagree, where a number is out of a symbol's range, or where a guard does not hold;
GraphError where no input tells a symbol.
Method: a dim that is a symbol tells it; one with a single symbol that is not known yet, to the first power, does then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from compiler_core.errors import GraphError, ShapeError
from compiler_core.graph.ir import Graph
from compiler_core.graph.sizes import symbols_of
from compiler_core.symbolic.expression import of_factor
from compiler_core.symbolic.size import SizeSymbol, Sym, SymOrInt, name_of, symbols_in, value_at

Numbers = dict[SizeSymbol, int]


@contextmanager
def assuming_nothing(graph: Graph) -> Iterator[None]:
    """Within the block a question about sizes that is not decided raises ClosedSizesError."""
    with ExitStack() as asking:
        for sizes in {symbol.sizes for symbol in symbols_of(graph)}:
            asking.enter_context(sizes.assuming_nothing())
        yield


def numbers_of(graph: Graph, shapes: Sequence[Sequence[int]]) -> Numbers:
    """Symbol -> number, of inputs that have these shapes; nothing of a graph without symbols."""
    symbols = symbols_of(graph)
    if not symbols:
        return {}
    numbers: Numbers = {}
    dims = list(_dims(graph, shapes))
    while told := [(symbol, number) for dim, got, _ in dims for symbol, number in _told(dim, got, numbers)]:
        numbers.update(reversed(told))  # of several, the first
    unknown = [symbol.name for symbol in symbols - numbers.keys()]
    if unknown:
        raise GraphError(f"graph {graph.name}: no input tells {', '.join(sorted(unknown))}")
    for dim, got, where in dims:
        if (expected := dim.at(numbers.__getitem__)) != got:
            raise ShapeError(f"graph {graph.name}: {where} is {dim}", expected=str(expected), got=str(got))
    _check_assumed(graph, numbers)
    return numbers


def _dims(graph: Graph, shapes: Sequence[Sequence[int]]) -> list[tuple[Sym, int, str]]:
    """(dim, its number, what it is), of those that hold symbols."""
    found: list[tuple[Sym, int, str]] = []
    for node, shape in zip(graph.inputs, shapes, strict=True):
        if len(shape) != len(node.shape):
            raise ShapeError(f"graph {graph.name}: input %{node.name}", expected=str(node.meta), got=str(tuple(shape)))
        dims: tuple[SymOrInt, ...] = node.shape
        pairs = enumerate(zip(dims, shape))
        found += [(dim, got, f"dim {k} of %{node.name}") for k, (dim, got) in pairs if isinstance(dim, Sym)]
    return found


def _told(dim: Sym, got: int, numbers: Numbers) -> list[tuple[SizeSymbol, int]]:
    """The symbol that a dim tells, if it is the only one that is not known."""
    unknown = dim.symbols - numbers.keys()
    if len(unknown) != 1:
        return []
    (symbol,) = unknown
    times = dim.terms.get(((symbol, 1),), 0)
    rest = dim - times * of_factor(symbol)
    if not times or symbol in symbols_in(rest):
        return []
    product = got - value_at(rest, numbers.__getitem__)
    return [(symbol, product // times)] if product % times == 0 else []


def _check_assumed(graph: Graph, numbers: Numbers) -> None:
    for symbol, number in numbers.items():
        low, high = symbol.sizes.ends[symbol]
        if not low <= number <= high:
            raise ShapeError(f"graph {graph.name}: {symbol.name} is in [{low}, {high}]", got=str(number))
    for guard in next(iter(numbers)).sizes.guards:
        if guard.symbols <= numbers.keys() and not guard.holds(numbers.__getitem__):
            got = ", ".join(f"{symbol.name} = {numbers[symbol]}" for symbol in sorted(guard.symbols, key=name_of))
            raise ShapeError(f"graph {graph.name} was made for sizes of which {guard.show(name_of)}", got=got)
