"""The errors of parity checks. Each is raised by a test."""

from __future__ import annotations

from compiler_core.errors import DistCompileError


class ParityError(DistCompileError, AssertionError):
    """Compiled gradients are further from the float64 reference than eager ones allow."""


class ParityTargetError(DistCompileError, ValueError):
    """What to check was given in a form that cannot be checked."""


class BackendNameError(DistCompileError, ValueError):
    """The option --backend names none."""


class ReplayError(DistCompileError, RuntimeError):
    """A replayed program asked for another collective than the one that was recorded."""


class RecordingFileError(DistCompileError, ValueError):
    """A file that is no recording of collectives, or not whole."""
