"""torch.utils.flop_counter: the floating-point operations of a block's matrix products and convolutions.

In: eager code in a block, forward and backward. Out: counts, in all and by module, as torch counts them: two operations
a multiplication, from the ops' own cost facts; the gradient of a grouped convolution's filters as if there were no
groups. Everything else counts as nothing.
Differences: attention counts as torch's fused kernels do on a GPU (on a CPU they count nothing there); so do products
with vectors, bilinear and recurrent layers, which torch leaves out. Keys are names: "aten.mm". Compiled graphs count by
their calls, in "Global" alone: no module is entered there. What backend "aot_eager" interprets is not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self, TypeVar

from compiler_core.meta import TensorMeta
from compiler_core.ops.attention.sizes import AttentionSizes
from compiler_core.ops.registry import Array, Attrs, Op, meta_of
from compiler_core.ops.routine import Routine
from compiler_core.ops.rules import Expansion
from compiler_core.runtime.profiler import Measurable, counting_calls
from compiler_core.tensor.observed import observed
from distcompile.errors import NotSupportedError
from distcompile.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

F = TypeVar("F", bound=Callable[..., Any])
_ATTENTION = "aten._scaled_dot_product_flash_attention"
_NAMES = {  # op -> torch's name in the forward, and in the backward
    "matmul": ("aten.mm", "aten.mm"),
    "attention": (_ATTENTION, _ATTENTION),
    "attention_backward": (f"{_ATTENTION}_backward", f"{_ATTENTION}_backward"),
    "convolution": ("aten.convolution", "aten.convolution_backward"),
    "convolution_input": ("aten.convolution", "aten.convolution_backward"),
    "convolution_weight": ("aten.convolution_backward", "aten.convolution_backward"),
    "recurrent": ("aten.rnn", "aten.rnn"),
    "recurrent_backward": ("aten.rnn_backward", "aten.rnn_backward"),
}
_PRODUCTS = ("gemm", "convolution", "attention", "recurrent")  # of compiled graphs
_UNITS = ("", "K", "M", "B", "T")


class FlopCounterMode:
    """Counts within `with`. depth: of modules in the table. display: whether it is printed at the end.

    mods: needed no more, as in torch. Raises NotSupportedError for `custom_mapping`: ops count by their own facts.
    """

    def __init__(
        self,
        mods: object = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: Mapping[Any, Any] | None = None,
    ) -> None:
        if custom_mapping:
            raise _no_formulas("FlopCounterMode(custom_mapping=)")
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[str, int]] = {}
        self.mod_tracker = ModuleTracker()
        self._block = ExitStack()
        self._compiled: Callable[[], list[tuple[Measurable, int]]] = list

    def __enter__(self) -> Self:
        self.flop_counts = defaultdict(lambda: defaultdict(int), {"Global": defaultdict(int)})
        self._block.enter_context(self.mod_tracker)
        self._block.enter_context(observed(self._count))
        self._compiled = self._block.enter_context(counting_calls())
        return self

    def __exit__(self, *error: object) -> None:
        counts = self.get_flop_counts()
        self._block.close()
        self.flop_counts, self._compiled = counts, list
        if self.display:
            print(self.get_table(self.depth))

    def _count(self, op: Op, arrays: Sequence[Array], attrs: Attrs, out: Array) -> None:
        if op.name not in _NAMES:
            return
        flops = _flops(op, [meta_of(array) for array in arrays], attrs)
        name = self._name(op, arrays)
        for module in {*self.mod_tracker.parents, "Global"}:
            self.flop_counts[module][name] += flops

    def _name(self, op: Op, arrays: Sequence[Array]) -> str:
        if op.name == "matmul" and min(a.ndim for a in arrays) > 2:
            return "aten.bmm"
        return _NAMES[op.name][self.mod_tracker.is_bw]

    def get_total_flops(self) -> int:
        """Of everything in the block."""
        return sum(self.get_flop_counts().get("Global", {}).values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """Module's name -> op's name -> operations; "Global" has all."""
        found = {module: dict(counts) for module, counts in self.flop_counts.items()}
        for executable, calls in self._compiled():
            for cost in executable.costs:
                op = cost.label.partition(" ")[0]
                if cost.flops and op.startswith(_PRODUCTS):
                    found["Global"][f"compiled {op}"] = found["Global"].get(f"compiled {op}", 0) + calls * cost.flops
        return found

    def get_table(self, depth: int | None = None) -> str:
        """A line a module, down to `depth` below the outermost, and a line an op of it."""
        depth = self.depth if depth is None else depth
        total, found = self.get_total_flops(), self.get_flop_counts()
        rows = []
        for module, counts in sorted(found.items(), key=lambda item: (item[0] != "Global", item[0])):
            level = 0 if module == "Global" else module.count(".") + 1
            if level > depth:
                continue
            rows.append((" " * level + module, sum(counts.values())))
            rows += [(" " * level + f" - {name}", flops) for name, flops in counts.items()]
        lines = [("Module", "FLOP", "% Total")]
        lines += [(name, _with_unit(flops, total), f"{100 * flops / max(total, 1):.2f}%") for name, flops in rows]
        widths = [max(len(line[column]) for line in lines) for column in range(3)]
        lines.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
        return "\n".join(
            f"{name:<{widths[0]}}  {flops:>{widths[1]}}  {share:>{widths[2]}}".rstrip() for name, flops, share in lines
        )


def _flops(op: Op, metas: Sequence[TensorMeta], attrs: Attrs) -> int:
    if op.name in ("attention", "attention_backward"):  # whatever a mask spares
        is_forward = op.name == "attention"
        sizes = AttentionSizes.of(metas if is_forward else metas[3:], False)
        widths = sizes.width + sizes.value_width if is_forward else 3 * sizes.width + 2 * sizes.value_width
        return 2 * sizes.batch * sizes.heads * sizes.queries * sizes.keys * widths
    rule = op.lower
    assert isinstance(rule, Expansion | Routine), f"{op.name} has no cost"
    flops = int(rule.flops(*metas, **attrs))
    return flops * attrs["groups"] if op.name == "convolution_weight" else flops


def _with_unit(flops: int, total: int) -> str:
    """In the unit that suits the total: thousands, millions, billions (B), ..."""
    step = min(max(0, (len(str(total)) - 2) // 3), len(_UNITS) - 1)
    return f"{flops / 1000**step:.3f}{_UNITS[step]}"


def register_flop_formula(targets: object, get_raw: bool = False) -> Callable[[F], F]:
    """torch's way to teach it an op. Raises NotSupportedError."""
    raise _no_formulas("register_flop_formula")


def _no_formulas(what: str) -> NotSupportedError:
    return NotSupportedError(f"{what} is not offered: an op counts by its own cost", remedy="leave it out")
