"""torch.random's names: the default generator's seed and state; `counter_draws` is ours.

In: seeds and states. Out: reproducible draws: which are torch's, docs/explanation/random.md.
"""

from __future__ import annotations

from compiler_core.tensor.making.random import (
    Generator,
    counter_draws,
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__all__ = [
    "Generator",
    "counter_draws",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]
