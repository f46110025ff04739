"""The launcher's catalogue of errors: what went wrong, what was expected, what was found, what to do.

In: facts. Out: exceptions laid out as everywhere in this project. Every class here is raised by a test.
"""

from __future__ import annotations


class LaunchError(Exception):
    """Base of the launcher's errors; the command line prints it and exits with code 2."""

    def __init__(self, what: str, *, where: str = "", expected: str = "", got: str = "", remedy: str = "") -> None:
        self.what, self.where, self.expected, self.got, self.remedy = what, where, expected, got, remedy
        rows = (("at", where), ("expected", expected), ("got", got), ("what to do", remedy))
        super().__init__("\n".join([what, *(f"  {label}: {text}" for label, text in rows if text)]))


class UsageError(LaunchError):
    """A command line that does not say what to run, or says something impossible."""


class TooManyRanksError(LaunchError):
    """More ranks than this host has room for: MPI could not start them."""


class MPINotFoundError(LaunchError):
    """mpi4py is missing, or finds no MPI library to load."""


class MpiexecNotFoundError(LaunchError):
    """The MPI library that mpi4py loads has no mpiexec on this machine."""


class MPIMismatchError(LaunchError):
    """The mpiexec found belongs to another MPI than the one mpi4py loads: every rank would see a world of one."""


class LogFileError(LaunchError):
    """A rank's log file cannot be written; the job has been ended, for its output would be lost."""


class CoreRegistryError(LaunchError):
    """The folder in which jobs note their cores cannot be used."""


class WorldSizeError(LaunchError):
    """Inside a rank: mpiexec did not hand this process the rank and world size that were asked for."""
