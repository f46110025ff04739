"""Written by tests/test_stubs.py from what the namespace holds: see there."""

# ruff: noqa
# fmt: off

from distcompile.optim import lr_scheduler as lr_scheduler
from distcompile.optim import swa_utils as swa_utils
from distcompile.optim.adadelta import Adadelta as Adadelta
from distcompile.optim.adafactor import Adafactor as Adafactor
from distcompile.optim.adagrad import Adagrad as Adagrad
from distcompile.optim.adam import Adam as Adam
from distcompile.optim.adam import AdamW as AdamW
from distcompile.optim.adamax import Adamax as Adamax
from distcompile.optim.asgd import ASGD as ASGD
from distcompile.optim.lbfgs import LBFGS as LBFGS
from distcompile.optim.muon import Muon as Muon
from distcompile.optim.nadam import NAdam as NAdam
from distcompile.optim.optimizer import Optimizer as Optimizer
from distcompile.optim.radam import RAdam as RAdam
from distcompile.optim.rmsprop import RMSprop as RMSprop
from distcompile.optim.rprop import Rprop as Rprop
from distcompile.optim.sgd import SGD as SGD
from distcompile.optim.sparse_adam import SparseAdam as SparseAdam

__all__ = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]
