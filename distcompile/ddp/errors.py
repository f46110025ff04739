"""The catalogue of errors of DistributedDataParallel: ranks that disagree, and gradients not reduced exactly once.

In: facts. Out: exceptions laid out as the core's: what, where, expected, got, remedy. Each is raised by a test.
"""

from __future__ import annotations

from compiler_core.errors import DistCompileError


class DdpError(DistCompileError, RuntimeError):
    """Base of the errors of DDP."""


class NoGradientsError(DdpError):
    """DDP around a module none of whose parameters requires a gradient."""


class ModelMismatchError(DdpError):
    """Ranks built different models: other parameter or buffer names, shapes, dtypes or requires_grad."""


class RankDisagreementError(DdpError):
    """Ranks captured different graphs, made different bucket plans, or set DDP up differently."""


class UnusedParameterError(DdpError):
    """A parameter got no gradient in a backward pass that was to reduce it, without find_unused_parameters=True."""


class EarlyEndError(DdpError):
    """A rank ran out of batches in a block of join(throw_on_early_termination=True)."""


class LedgerError(DdpError):
    """Gradients not reduced exactly once: twice in one backward, of different steps, or never."""


class PlanError(DdpError):
    """A backward graph that does not fit the agreed bucket plan, or a plan that breaks its invariants."""


class NotInitializedError(DdpError, ValueError):
    """A function of `distcompile.distributed` before init_process_group()."""


class CommHookError(DdpError, TypeError):
    """A communication hook that cannot be registered, that differs between ranks, or that breaks its contract."""
