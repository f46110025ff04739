"""Chains of arithmetic with numbers from all of a dtype's range: what a seed draws, it always draws.

In: a seed. Out: a dtype's name, data, and a program of one operand `x`, a text that torch and this package both run.
Numbers are drawn evenly over the exponents that the dtype has, half of them powers of two, some of them its ends, 0, -0
and infinities. So rules that join, move or drop numbers meet those whose product, quotient or sum the dtype does not
hold.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = ("float16", "float16", "bfloat16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8")
SIZE = (3, 4)


class RandomConstants:
    """One program. calls: how many links its chain has."""

    def __init__(self, seed: int, calls: int = 4) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = DTYPES[self.rng.integers(len(DTYPES))]
        self.is_float = "float" in self.dtype
        self.numpy = np.dtype(getattr(ml_dtypes, self.dtype) if self.dtype == "bfloat16" else self.dtype)
        self.data = np.array([self.number() for _ in range(math.prod(SIZE))]).reshape(SIZE)
        self.text = "x"
        for _ in range(calls):
            forms = FLOAT_FORMS if self.is_float else WHOLE_FORMS
            link = forms[self.rng.integers(len(forms))].format(x="y", a=self.said(), b=self.said())
            self.text = f"(lambda y: {link})({self.text})"

    def number(self) -> Any:
        """One that the dtype holds."""
        return self._float() if self.is_float else self._whole()

    def said(self) -> str:
        """A number in a program's text; no whole number is 0, by which none is divided."""
        number = self.number()
        return f"({number!r})" if math.isfinite(number) else f"float({str(number)!r})"

    def _float(self) -> float:
        limits = ml_dtypes.finfo(self.numpy)
        special = (0.0, -0.0, math.inf, -math.inf, float(limits.max), float(limits.smallest_normal), 1.0, -1.0, 2.0)
        if self.rng.random() < 0.12:
            return special[self.rng.integers(len(special))]
        low, high = math.log2(float(limits.smallest_subnormal)), math.log2(float(limits.max))
        if self.rng.random() < 0.5:  # near 1, so that not all overflows at once
            low, high = max(low, -12.0), min(high, 12.0)
        exponent = float(self.rng.uniform(low, high))
        size = 2.0 ** math.floor(exponent) if self.rng.random() < 0.5 else 2.0**exponent
        return float(np.asarray(size * (-1) ** self.rng.integers(2)).astype(np.float64))

    def _whole(self) -> int:
        limits = np.iinfo(self.numpy)
        size = int(2.0 ** self.rng.uniform(0, math.log2(int(limits.max))))
        return size if limits.min == 0 or self.rng.random() < 0.6 else -size


FLOAT_FORMS = (
    "{x} * {a}",
    "{x} * {a} * {b}",
    "{a} * {x} / {b}",
    "{x} / {a}",
    "{x} / {a} / {b}",
    "{x} + {a}",
    "{a} - {x}",
    "{x} - {a} + {b}",
    "-{x} * {a}",
    "{a} / {x}",
    "{x} ** 2",
    "{x} ** 3",
    "abs({x}) ** 0.5",
    "{x} * 0.5 + {x} * {a}",
    "{x} + {x}",
    "m.where({x} > {a}, {x} * {b}, {x})",
    "m.add({x}, {x}, alpha=0.5)",
    "{x}[:, :1].expand(3, 4) * {x} * 4.0",
    "{x}[:, :1].expand(3, 7).sum(1, keepdim=True).expand(3, 4)",
    "({x} * {a})[:, :1].expand(3, 4) * {b}",
    "{x}.mean(1, keepdim=True) * {a} + {x} * 0",
    "m.clamp({x}, max=1.0) * {a}",
)
WHOLE_FORMS = (
    "{x} * {a}",
    "{x} * {a} * {b}",
    "{x} + {a} + {b}",
    "{a} - {x}",
    "{x} // {a}",
    "{x} % {a}",
    "-{x} * {a}",
    "{x} ** 2",
    "m.where({x} > {a}, {x} * {b}, {x})",
    "m.clamp({x}, max={a})",
    "{x} * {a} // {b}",
    "({x} * {a}) ^ {b}",
    "{x} + {x}",
)
