"""torch.cuda's questions, answered: there is no GPU here yet. Scripts that ask first run on the CPU.

In: nothing. Out: "no".
"""

from __future__ import annotations


def is_available() -> bool:
    """Whether a GPU can be used: not yet."""
    return False


def device_count() -> int:
    """The number of GPUs that can be used."""
    return 0


def manual_seed(seed: int) -> None:
    """Seed the GPUs' generators: there are none."""


def manual_seed_all(seed: int) -> None:
    """Seed the GPUs' generators: there are none."""
