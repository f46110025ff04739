"""Optimizers and learning rate schedules: torch.optim's names.

In: parameters with gradients. Out: updated parameters.
"""

from __future__ import annotations

from compiler_core.births import note as note_births
from distcompile.optim import lr_scheduler, swa_utils
from distcompile.optim.adadelta import Adadelta
from distcompile.optim.adafactor import Adafactor
from distcompile.optim.adagrad import Adagrad
from distcompile.optim.adam import Adam, AdamW
from distcompile.optim.adamax import Adamax
from distcompile.optim.asgd import ASGD
from distcompile.optim.lbfgs import LBFGS
from distcompile.optim.muon import Muon
from distcompile.optim.nadam import NAdam
from distcompile.optim.optimizer import Optimizer
from distcompile.optim.radam import RAdam
from distcompile.optim.rmsprop import RMSprop
from distcompile.optim.rprop import Rprop
from distcompile.optim.sgd import SGD
from distcompile.optim.sparse_adam import SparseAdam

note_births(list(vars().values()))

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]
