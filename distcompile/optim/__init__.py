"""Optimizers and learning rate schedules: torch.optim's names.

In: parameters with gradients. Out: updated parameters.
"""

from __future__ import annotations

from compiler_core.births import note as note_births
from compiler_core.names.namespaces import classes_in
from distcompile.optim import (  # noqa: F401  looked through below
    adadelta,
    adafactor,
    adagrad,
    adam,
    adamax,
    asgd,
    lbfgs,
    lr_scheduler,
    muon,
    nadam,
    optimizer,
    radam,
    rmsprop,
    rprop,
    sgd,
    sparse_adam,
    swa_utils,
)

_OPTIMIZERS = classes_in(vars().values(), optimizer.Optimizer)
globals().update(_OPTIMIZERS)
note_births([*vars().values()])
__all__ = ["lr_scheduler", "swa_utils"]
__all__ += sorted(_OPTIMIZERS)
