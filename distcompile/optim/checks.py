"""What optimizers check of their options, with torch's messages.

In: options by the name that the message gives them. Out: nothing, or ArgumentError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distcompile.errors import ArgumentError


def check_not_negative(options: Mapping[str, float]) -> None:
    """Raises ArgumentError for the first option below zero, NaN included. Keys: "learning rate", "rho value", ..."""
    for name, number in options.items():
        if not number >= 0:
            raise ArgumentError(f"Invalid {name}: {number}", expected="at least 0")


def check_betas(betas: Sequence[float]) -> None:
    """Raises ArgumentError unless every beta lies in [0, 1)."""
    for i, beta in enumerate(betas):
        if not 0 <= beta < 1:
            raise ArgumentError(f"Invalid beta parameter at index {i}: {beta}", expected="0 <= beta < 1")
