"""A compiled entry whose sizes the call decides: for each set of sizes, an entry of the graph made for these.

In: a `Captured` whose graph holds symbols, and what makes an entry of one that holds none. Out: `compute` and
`results`, as `entry.py` says. The numbers of the symbols come with what the check hands over. Entries are kept for the
sizes used last, `config.size_instances` of them; a call of other sizes compiles its own, as the first call did.
Invariant: what was captured for the symbols is what capture would give for the numbers: the guards say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

from compiler_core import log
from compiler_core.aot.boundary import Hook
from compiler_core.backend import OtherSizes, for_many_sizes
from compiler_core.capture.captured import Captured
from compiler_core.capture.compiled.control import stance
from compiler_core.capture.compiled.entry import Instance, Results
from compiler_core.capture.guards.guards import Check, Handed
from compiler_core.capture.lessons import Along
from compiler_core.config import config
from compiler_core.graph.ir import Graph
from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor


class SizesRefused(Exception):
    """A capture in which sizes are symbols has been taken back. why, where: it ended so, at the user's line. before: so
    did one with more symbols. along: which sizes that have not changed were."""

    def __init__(self, why: str, where: str, before: SizesRefused | None, along: Along) -> None:
        super().__init__(f"{why}, at {where}" if where else why)
        self.why, self.where, self.before, self.along = why, where, before, along

    def most_along(self) -> Along:
        """Of this one and those before it that ended as it did, the most."""
        before = self.before
        return before.most_along() if before is not None and before.is_for(self.why, self.where) else self.along

    def is_for(self, why: str, where: str) -> bool:
        return (self.why, self.where) == (why, where)


class SizesFailed(Exception):
    """What was captured for symbols gives no graph for the sizes of a call. Nothing has happened."""


OFTEN = 8  # times that sizes come before something is compiled for them, once it was for others
MOST_MET = 4096  # sets of sizes that are counted
Numbers = tuple[int, ...]  # of the symbols, in the order of `Captured.sizes`


class SizedEntry:
    """See the head of this file. told: the names of the graphs that were made, in order, with their sizes. at_once: for
    so many sets of sizes something is compiled when they first come; None: for all. graphs_of: what a backend would be
    given to compile."""

    def __init__(
        self,
        captured: Captured,
        make: Callable[[Captured], Instance],
        graphs_of: Callable[[Captured], Sequence[Graph]],
        at_once: int | None = None,
    ) -> None:
        self.captured, self.make, self.graphs_of, self.at_once = captured, make, graphs_of, at_once
        self.results = Results(captured)
        self.graphs: tuple[tuple[str, Graph], ...] = (("sized", captured.graph),)  # and those of the first instance
        self.told: dict[str, str] = {}
        self.places = [place for _, place in captured.sizes]
        self._instances: dict[Numbers, Instance] = {}  # used last, at the end
        self._met: Counter[Numbers] = Counter()  # how often, of sizes for which nothing is compiled
        self._lock = Lock()  # of these tables

    def is_new(self, arguments: Sequence[Any]) -> bool:
        """Whether nothing is compiled yet for the sizes of this call."""
        return tuple([arguments[place] for place in self.places]) not in self._instances

    def waits(self, arguments: Sequence[Any]) -> bool:
        """Whether a call of new sizes had better run eager, for the stance asks for it, or nothing is compiled for them
        until they have come `OFTEN` times; which is told once."""
        if stance.name in ("frozen", "eager_on_recompile"):
            return True
        if self.at_once is None or len(self._instances) < self.at_once:
            return False
        numbers = tuple([arguments[place] for place in self.places])
        with self._lock:
            if len(self._met) > MOST_MET:
                self._met.clear()
            self._met[numbers] += 1
            if self._met[numbers] >= OFTEN:
                del self._met[numbers]
                return False
        log.warn_once(
            f"waits {id(self)}",
            f"{self.captured.graph.name} was compiled for {len(self._instances)} sets of sizes. Others run eager until "
            f"they have come {OFTEN} times: compile(dynamic=True) compiles for each at once.",
            stacklevel=5,
        )
        return True

    def compute(self, inputs: list[Array], arguments: Sequence[Any], hooks: Sequence[Hook]) -> Sequence[Tensor]:
        """The tensors that one call leaves. hooks: of its backward; they may come once it has run."""
        numbers = tuple([arguments[place] for place in self.places])
        with self._lock:
            found = self._instances.pop(numbers, None)
            if found is not None:
                self._instances[numbers] = found
        if found is None:
            found = self._keep(numbers, self._made(numbers))
        return found.compute(inputs, arguments, hooks)

    def _keep(self, numbers: Numbers, made: Instance) -> Instance:
        with self._lock:
            self._instances[numbers] = made
            while len(self._instances) > max(config.size_instances, 1):
                del self._instances[next(iter(self._instances))]
        return made

    def _made(self, numbers: Numbers) -> Instance:
        """Several threads, which may be ranks that agree on something meanwhile, compile at once."""
        sizes = self.captured.sizes
        static = self._at(numbers)
        shown = ", ".join(f"{symbol.text} = {n}" for (symbol, _), n in zip(sizes, numbers))
        log.emit("recompiles", f"{self.captured.graph.name} is compiled for {shown}")
        are_round = all(n % 16 == 0 for n in numbers if n >= 16)
        with for_many_sizes(others=self._others(numbers), are_round=are_round):
            made = self.make(static)
        if not self.told:
            self.graphs = (*self.graphs, *made.graphs)
        self.told[static.graph.name] = shown
        return made

    def _at(self, numbers: Numbers) -> Captured:
        try:
            return self.captured.at({symbol: n for (symbol, _), n in zip(self.captured.sizes, numbers)})
        except Exception as error:  # whatever it is: what is captured with constants says what is true of them
            raise SizesFailed(f"{type(error).__name__}: {error}") from error

    def _others(self, numbers: Numbers) -> OtherSizes:
        """What would be compiled for sizes like these, equal where they are; as many differ as the graph lets."""
        return [partial(self._graphs_near, numbers, odd) for odd in (True, False)]

    def _graphs_near(self, numbers: Numbers, odd: bool) -> Sequence[Graph]:
        """odd: sizes are odd, if they can be, so that few offsets agree, and between the same powers of two, as many
        choices depend on these; else larger, as often multiples of two as before."""
        made: dict[int, int] = {}
        for k, n in enumerate(dict.fromkeys(numbers)):
            for step in _steps(n, k, odd):
                others = made | {n: n + step}
                if step and self._can_be(tuple(others.get(m, m) for m in numbers)):
                    made = others
                    break
        return self.graphs_of(self._at(tuple(made.get(n, n) for n in numbers)))

    def _can_be(self, numbers: Numbers) -> bool:
        """Whether there is a graph for such sizes, within what marks say of them."""
        for (symbol, _), n in zip(self.captured.sizes, numbers):
            if not symbol.declared[0] <= n <= symbol.declared[1]:
                return False
        try:
            self._at(numbers)
        except SizesFailed:
            return False
        return True


def _steps(n: int, k: int, odd: bool) -> Iterator[int]:
    """Of the k-th of some sizes, n: how far from it is a size that is looked at too, the best first."""
    if odd and n > 4:
        top = 1 << (n - 1).bit_length()
        yield (top - 1 - 2 * k if 4 * n <= 3 * top else top // 2 + 1 + 2 * k) - n
    if odd:
        yield 9 + n % 2 + 2 * k
    yield (n & -n) * (3 + 2 * (k % 3))


Entry: TypeAlias = Instance | SizedEntry  # what a compiled function keeps for one set of guards
Guarded: TypeAlias = tuple[Check, Entry]


def compiled_among(
    items: Iterable[Guarded], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Guarded, Handed] | None:
    """An entry that fits a call, and is compiled for its sizes; and what its check hands over."""
    for item in items:
        found = item[0](args, kwargs)
        if not isinstance(found, int) and not (type(item[1]) is SizedEntry and item[1].is_new(found[1])):
            return item, found
    return None
