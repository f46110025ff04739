"""Names of backends: which transport each means, and which are there.

In: names that people's scripts use ("gloo", "nccl", "mpi"). Out: the name of our transport, or an error that says which
names are taken; True or False for what is available. Nothing is loaded here.
"""

from __future__ import annotations

import os
from typing import ClassVar

from collectives.connect import Transport
from collectives.nccl.library import is_there
from distcompile.ddp.errors import NotInitializedError

# names that people's scripts use -> ours. "auto" takes tensors on GPUs, too, where there is one
BACKENDS: dict[str, Transport] = {
    "auto": "auto",
    "mpi": "mpi",
    "threaded": "threaded",
    "gloo": "host",
    "cpu:gloo": "host",
    "nccl": "nccl",
    "cuda:nccl": "nccl",
    "cpu:gloo,cuda:nccl": "auto",
    "cpu:mpi,cuda:nccl": "auto",
}


def transport_of(backend: str | None) -> Transport:
    """The transport that a backend's name means. Raises NotInitializedError for one that is not there."""
    name = (backend or "auto").lower()
    transport = BACKENDS.get(name)
    if transport is None or (transport == "nccl" and not is_there()):
        known = [n for n, t in BACKENDS.items() if ":" not in n and (t != "nccl" or is_there())]
        raise NotInitializedError(
            f"no transport for backend {backend!r}",
            expected=", ".join(known),
            got="" if transport is None else "there is no NCCL transport here: no CUDA device, or CuPy is missing",
            remedy="leave backend out, or backend='gloo'"
            + ("" if transport is None else '; for GPUs: pip install "distcompile[cuda]"'),
        )
    return transport


class Backend(str):
    """A backend's name, in small letters: a string.

    Example:
        >>> dist.Backend("GLOO") == "gloo"
        True
    """

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    THREADED = "threaded"

    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": "gloo", "cuda": "nccl"}

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
    """Whether there is a CUDA device here, and CuPy. Nothing is loaded."""
    return is_there()


def is_ucc_available() -> bool:
    """Never."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether `init_process_group(backend)` would take that name."""
    transport = BACKENDS.get(backend.lower())
    return transport is not None and (transport != "nccl" or is_there())


def is_torchelastic_launched() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ
