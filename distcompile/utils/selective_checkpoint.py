"""Selective checkpointing: which values of a checkpointed function are kept, by the operator that makes them.

In: a policy written in torch's operators (`torch.ops.aten.mm.default`), or a list of those whose results are kept. Out:
contexts for `checkpoint(..., context_fn=)`. In compiled code a value of which the policy says so is kept for the
backward, and is not computed again; the rest of the function is. In eager code what the first run kept is taken in the
second, in its order among those of its operation; composites are composed in both, so that they have one order.
What is computed are our own operations, so the policy is asked of each under the operators that torch would have called
there: a product is mm and addmm, or bmm and baddbmm; an operation without another name is torch's of its own name.
A view is taken again whatever a policy says: it takes no time, and no memory.
What is to be offloaded waits in the host's memory where the function runs on a CUDA device: compiled it travels beside
the computation, as what `compile(offload=)` sends, eager the host waits for each value. On the CPU it stays.
Limits: what torch calls one operator and is recorded as several (layer_norm, gelu) is asked of as these.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from compiler_core.aot.offload import LEAST_NBYTES
from compiler_core.device import cpu, device_of
from compiler_core.graph.ir import Call
from compiler_core.graph.kept import Keep
from compiler_core.ops.batching.value import Batched
from compiler_core.ops.registry import Array, Attrs, Op, Value, current_trace
from compiler_core.tensor.autograd.segment import RecomputationError
from compiler_core.tensor.observed import ALL, observed
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.library.aten_names import OVERLOADS
from distcompile.library.namespaces import ops
from distcompile.library.operators import OpOverload, OpOverloadPacket

_ATTENTION = tuple(
    f"_scaled_dot_product_{kind}"
    for kind in (
        *("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention"),
        "fused_attention_overrideable",
    )
)
# operations of ours -> torch's operators, where the name differs
_NAMES: dict[str, tuple[str, ...]] = {
    "matmul": ("mm", "addmm"),
    "attention": _ATTENTION,
    "convolution_last": ("convolution",),
    "convolution_inner": ("convolution",),
    "cast": ("_to_copy",),
}
_BATCHED = {"mm": "bmm", "addmm": "baddbmm"}


class CheckpointPolicy(enum.Enum):
    """What becomes of the result of an operator in a checkpointed function, until the backward."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_TAKEN = object()  # in the place of what a second run has taken
_KEEPS = {
    CheckpointPolicy.MUST_SAVE: Keep.HERE,
    CheckpointPolicy.PREFER_SAVE: Keep.HERE,
    CheckpointPolicy.MUST_RECOMPUTE: Keep.AGAIN,
    CheckpointPolicy.PREFER_RECOMPUTE: Keep.AGAIN,
    CheckpointPolicy.MUST_CPU_OFFLOAD: Keep.HOST,
    CheckpointPolicy.PREFER_CPU_OFFLOAD: Keep.HOST_IF_LARGE,
}


class SelectiveCheckpointContext:
    """What a policy is told beside the operator and its arguments. is_recompute: False; a policy is asked once."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


Policy = Callable[..., CheckpointPolicy | bool]


class Selective:
    """One of the two contexts. kept: of each operation what its applications made, for the two together; None: that is
    not kept."""

    def __init__(self, policy: Policy, kept: dict[str, list[Any]], *, is_first: bool) -> None:
        self.policy, self.kept, self.is_first = policy, kept, is_first
        self.blocks = ExitStack()

    def __enter__(self) -> None:
        if current_trace() is None:
            self.counts: Counter[str] = Counter()
            look = {"observer": self._keep} if self.is_first else {"instead": self._again}
            self.blocks.enter_context(observed(**look, composes=ALL))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.blocks.close()

    def _keep(self, op: Op, arrays: Sequence[Array], attrs: Attrs, out: Value) -> None:
        may = op.alias is None and not isinstance(out, Batched)
        keep = self._wants(op, arrays, out) if may else Keep.AGAIN
        goes = keep is Keep.HOST or (keep is Keep.HOST_IF_LARGE and out.nbytes >= LEAST_NBYTES)
        kept = None if keep is Keep.AGAIN else cpu.put(out) if goes and device_of(out).is_gpu else out.copy()
        self.kept.setdefault(op.name, []).append(kept)  # a copy: others may write to `out`

    def _again(self, op: Op, arrays: Sequence[Array], attrs: Attrs) -> Array | None:
        place, kept = self.counts[op.name], self.kept.get(op.name, ())
        self.counts[op.name] += 1
        if place >= len(kept):
            raise RecomputationError(
                f"{op.name} invocation index {place} encountered during backward but not found in storage. This can "
                "happen if the operations in the checkpointed region are nondeterministic or depend on global state "
                "that changed between forward and backward."
            )
        found: Any = kept[place]
        if found is _TAKEN:
            raise RecomputationError("Trying to backward an extra time. You are only allowed to backward once on any "
                                     "region computed under selective activation checkpoint.")  # fmt: skip
        if found is not None:
            self.kept[op.name][place] = _TAKEN
            there = device_of(arrays[0]) if arrays else cpu
            return there.put(found) if there.is_gpu and device_of(found) is cpu else found  # type: ignore[no-any-return]
        return None

    def keeps(self, call: Call) -> Keep:
        """What the policy does with the result of a recorded call."""
        return self._wants(call.op, call.args, call)

    def _wants(self, op: Op, operands: Sequence[Value], out: Value) -> Keep:
        context = SelectiveCheckpointContext(is_recompute=False, op_output=Tensor._wrap(out))
        args = [Tensor._wrap(operand) for operand in operands]
        answers = [self.policy(context, operator, *args) for operator in operators_of(op, operands)]
        return max(
            (Keep(answer) if isinstance(answer, bool) else _KEEPS[answer] for answer in answers), default=Keep.AGAIN
        )


def operators_of(op: Op, operands: Sequence[Value]) -> Iterator[OpOverload]:
    """The operators that torch may have called for an operation of these operands."""
    names = _NAMES.get(op.name, (op.name,))
    is_batched = min((len(operand.shape) for operand in operands), default=0) > 2
    for name in [_BATCHED.get(name, name) for name in names] if is_batched else names:
        overload = OVERLOADS.get(name, ("default",))[0]
        yield getattr(getattr(ops.aten, name), overload)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | list[Any], allow_cache_entry_mutation: bool = False
) -> tuple[Selective, Selective]:
    """Contexts for `checkpoint(..., use_reentrant=False, context_fn=partial(create_..., policy))`.

    policy_fn_or_list: policy(context, operator, *args, **kwargs) -> CheckpointPolicy; or the operators whose results
    are kept. allow_cache_entry_mutation: torch's; values here are never changed. Raises ArgumentError (a ValueError)
    for what is no overload of an operator in the list, TypeError for another argument.
    """
    if isinstance(policy_fn_or_list, list):
        wanted = policy_fn_or_list
        for op in wanted:
            if not isinstance(op, OpOverload):
                more = (
                    "Please update the OpOverloadPacket to a specific OpOverload. For example, if you have "
                    "`torch.ops.aten.mm`, change it to `torch.ops.aten.mm.default`."
                )
                raise ArgumentError(
                    f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. "
                    + (more if isinstance(op, OpOverloadPacket) else "")
                )

        def policy(context: SelectiveCheckpointContext, op: OpOverload, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in wanted else CheckpointPolicy.PREFER_RECOMPUTE

        return _pair(policy)
    if not callable(policy_fn_or_list):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    return _pair(policy_fn_or_list)


def _pair(policy: Policy) -> tuple[Selective, Selective]:
    kept: dict[str, list[Any]] = {}
    return Selective(policy, kept, is_first=True), Selective(policy, kept, is_first=False)
