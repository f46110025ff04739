"""Names of backends: which transport each means, and which are there.

In: names that people's scripts use ("gloo", "nccl", "mpi"). Out: the name of our transport, or an error that says which
names are taken; True or False for what is available. Nothing is loaded here.
"""

from __future__ import annotations

import os
from typing import Literal, TypeAlias

from distcompile.ddp.errors import NotInitializedError

Transport: TypeAlias = Literal["auto", "mpi", "threaded"]

# names that people's scripts use -> ours; None: for another device
BACKENDS: dict[str, Transport | None] = {
    "auto": "auto",
    "mpi": "mpi",
    "threaded": "threaded",
    "gloo": "auto",
    "cpu:gloo": "auto",
    "nccl": None,
    "cuda:nccl": None,
    "cpu:gloo,cuda:nccl": "auto",
}


def transport_of(backend: str | None) -> Transport:
    """The transport that a backend's name means. Raises NotInitializedError for another device's."""
    name = (backend or "auto").lower()
    transport = BACKENDS.get(name)
    if transport is None:
        expected = ", ".join(n for n, known in BACKENDS.items() if known and ":" not in n)
        raise NotInitializedError(
            f"no transport for backend {backend!r} on the CPU",
            expected=expected,
            remedy="leave backend out, or backend='gloo'; distcompile has no NCCL transport",
        )
    return transport


class Backend(str):
    """torch's class of backend names: `Backend("GLOO") == "gloo"`."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    THREADED = "threaded"

    def __new__(cls, name: str) -> Backend:
        return super().__new__(cls, name.lower())


def is_available() -> bool:
    """Whether this package can be used: always."""
    return True


def is_mpi_available() -> bool:
    """Whether mpi4py is installed. MPI is not loaded."""
    from importlib.util import find_spec

    return find_spec("mpi4py") is not None


def is_gloo_available() -> bool:
    """Never: "gloo" is taken as a name for the default transport."""
    return False


def is_nccl_available() -> bool:
    """Never, so far."""
    return False


def is_ucc_available() -> bool:
    """Never."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether `init_process_group(backend)` would take that name."""
    return BACKENDS.get(backend.lower()) is not None


def is_torchelastic_launched() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ
