"""Checks of sparse tensors: whether indices are checked, and gradcheck of functions of sparse tensors.

In: functions and inputs, any of which may be sparse. Out: what the check says. `check_sparse_tensor_invariants` is
torch's switch; here indices are checked always, so that it changes nothing but what `is_enabled` says.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.sparse.construct import sparse_compressed_tensor, sparse_coo_tensor
from compiler_core.sparse.tensor import SparseTensor
from compiler_core.tensor.making.creation import ones
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError


class _Switch(threading.local):
    on: bool = False


_switch = _Switch()


class check_sparse_tensor_invariants:
    """torch's switch: `enable()`, `disable()`, a block, or a decorator. Indices are checked either way."""

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved_state: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        """What was said last."""
        return _switch.on

    @staticmethod
    def enable() -> None:
        """Say that indices are checked."""
        _switch.on = True

    @staticmethod
    def disable() -> None:
        """Say that they need not be."""
        _switch.on = False

    def __enter__(self) -> None:
        if self.saved_state is not None:
            raise ArgumentError("This context manager instance is already activated. Use a different context manager "
                                "instance for context nesting.")  # fmt: skip
        self.saved_state, _switch.on = _switch.on, self.state

    def __exit__(self, *error: object) -> None:
        _switch.on, self.saved_state = bool(self.saved_state), None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return checked


def as_sparse_gradcheck(gradcheck: Callable[..., bool]) -> Callable[..., bool]:
    """`gradcheck` for functions that take or give sparse tensors: it sees their values.

    masked=True: a gradient has the places of its tensor; else each input is first given all of its places.
    """

    @functools.wraps(gradcheck)
    def check(func: Callable[..., Any], inputs: Any, *, masked: bool = False, **kwargs: Any) -> bool:
        given = inputs if isinstance(inputs, Sequence) else (inputs,)
        whole = [one if masked or not _is_checked(one) else _filled(one) for one in given]
        seen = [_values(one).detach()._require() if _is_checked(one) else one for one in whole]

        def of_values(*values: Any) -> Any:
            args = [_with(one, held) if _is_checked(one) else held for one, held in zip(whole, values, strict=True)]
            out = func(*args)
            found = [_dense(one, masked) for one in (out if isinstance(out, (list, tuple)) else (out,))]
            return tuple(found) if isinstance(out, (list, tuple)) else found[0]

        return gradcheck(of_values, tuple(seen), **kwargs)

    return check


def _is_checked(value: Any) -> bool:
    return isinstance(value, SparseTensor) and value.requires_grad


def _values(self: SparseTensor) -> Tensor:
    return self.sparse.values


def _filled(self: SparseTensor) -> Any:
    """The same tensor, with all of its places."""
    mask: Any = ones(tuple(self.shape)).to_sparse(self.pattern.sparse_dim)
    made: Any = self.detach().to_dense().sparse_mask(mask)
    return made.to_sparse(layout=self.layout)._require()


def _with(self: SparseTensor, values: Tensor) -> SparseTensor:
    pattern = self.pattern
    if pattern.is_coo:
        return sparse_coo_tensor(pattern.indices[0], values, pattern.shape, is_coalesced=pattern.coalesced)
    begins, plain = pattern.indices
    return sparse_compressed_tensor(begins, plain, values, pattern.shape, layout=pattern.layout)


def _dense(value: Any, masked: bool) -> Any:
    return value.to_dense(masked_grad=masked) if isinstance(value, SparseTensor) and value.requires_grad else value
