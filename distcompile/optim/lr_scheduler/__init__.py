"""Learning rate schedules: each sets `group["lr"]` of an optimizer's groups once an epoch (or step).

In: an optimizer, and `step()` after its step. Out: learning rates. Names, arguments and values are torch's.
"""

from __future__ import annotations

from compiler_core.names.namespaces import classes_in
from distcompile.optim.lr_scheduler import base, composed, cycles, cyclic, plateau, schedules

_SCHEDULERS = classes_in((base, composed, cycles, cyclic, plateau, schedules), base.LRScheduler)
globals().update(_SCHEDULERS, _LRScheduler=base.LRScheduler)  # its old name
__all__ = sorted(_SCHEDULERS)
