"""The catalogue of errors of `distcompile.distributed`: how a job was started, and which ranks a group has.

In: facts. Out: exceptions laid out as the core's: what, where, expected, got, remedy. Each is raised by a test.
Each is also the built-in exceptions that torch raises in such places.
"""

from __future__ import annotations

from compiler_core.errors import DistCompileError


class LaunchError(DistCompileError, ValueError):
    """The world that the environment or the arguments promise is not the world there is."""


class GroupRankError(DistCompileError, ValueError, RuntimeError):
    """A rank that is not in the group, or a call from one."""


class TensorListError(DistCompileError, ValueError, TypeError, RuntimeError):
    """What is given to a collective is no Tensors, or they do not fit together: in number, shape or dtype."""
