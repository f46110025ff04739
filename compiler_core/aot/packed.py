"""A compiled call on the tape under `saved_tensors_hooks`: what it saves is packed (`tensor/nodes/saving.py`).

In: a BackwardCall that has just been made. Out: the same object, as a PackedCall, if hooks are on in this thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core import cuda
from compiler_core.aot.wrapper import BackwardCall
from compiler_core.ops.registry import Array
from compiler_core.tensor.nodes.saving import Packed, innermost
from compiler_core.tensor.tensor import Tensor


def pack_call(call: Any) -> None:
    """Pack what a compiled call saves. Its gradients cannot be differentiated then: that would take its inputs."""
    hooks = innermost()
    if hooks is None:
        return
    saved = len(call.backward.layout.saved)
    values = [_on_device(value) if k < saved else value for k, value in enumerate(call.values)]
    call.values = [Packed(Tensor._wrap(value), None, hooks) for value in values]
    call.cells, call.read_at, call.versions = (), (), []
    call.replay = call.inputs = None
    call.__class__ = PackedCall


def _on_device(value: Array) -> Array:
    """A saved value where hooks look for it: of one in the host's memory (`offload.py`), which may still be on its way
    there, a copy on the device."""
    if not cuda.is_pinned(value):
        return value
    from compiler_core.runtime.cuda import host_memory

    return host_memory.on_device(value)


class PackedCall(BackwardCall):
    """A compiled call whose saved values are packed. It writes over none of them: they may be the program's."""

    __slots__ = ()

    def __call__(self, grads: Sequence[Any], tape: Any = None) -> list[Any]:
        values: Any = self.values
        self.values = [value.tensor()._read() for value in values]
        try:
            return super().__call__(grads, tape)
        finally:
            self.values = values

    @property
    def is_needed_again(self) -> bool:
        return True

    def release(self) -> bool:
        return False
