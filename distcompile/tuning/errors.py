"""The catalogue of errors of tuning: plan files that cannot be used, and targets that cannot be tuned.

In: facts. Out: exceptions laid out as the core's: what, where, expected, got, remedy. Each is raised by a test.
"""

from __future__ import annotations

from compiler_core.errors import DistCompileError


class TuningError(DistCompileError, RuntimeError):
    """Something cannot be tuned or measured as asked."""


class PlanFileError(DistCompileError, ValueError):
    """A plan file that is missing, truncated, or no plan file."""


class PlanFileMismatchError(PlanFileError):
    """A whole plan file, of another model, world or transport: the message says what differs."""
