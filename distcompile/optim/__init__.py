"""Optimizers and learning rate schedules: torch.optim's names.

In: parameters with gradients. Out: updated parameters. Each file is imported when one of its names is first asked for:
a program uses one optimizer of fifteen.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from compiler_core.births import note as note_births

_FILES = {
    "adadelta": "Adadelta",
    "adafactor": "Adafactor",
    "adagrad": "Adagrad",
    "adam": "Adam AdamW",
    "adamax": "Adamax",
    "asgd": "ASGD",
    "lbfgs": "LBFGS",
    "lr_scheduler": "",
    "muon": "Muon",
    "nadam": "NAdam",
    "optimizer": "Optimizer",
    "radam": "RAdam",
    "rmsprop": "RMSprop",
    "rprop": "Rprop",
    "sgd": "SGD",
    "sparse_adam": "SparseAdam",
    "swa_utils": "",
}
_PLACES = {name: file for file, names in _FILES.items() for name in names.split()}
__all__ = sorted(["lr_scheduler", "swa_utils", *_PLACES])


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        if name in _FILES:
            return import_module(f"distcompile.optim.{name}")
        raise AttributeError(f"module 'distcompile.optim' has no attribute {name!r}")
    value = getattr(import_module(f"distcompile.optim.{_PLACES[name]}"), name)
    note_births([value])
    return globals().setdefault(name, value)


def __dir__() -> list[str]:
    return sorted({*globals(), *_FILES, *__all__})
