"""Messages where MPI cannot read the other process's memory, and moves only a little whenever it is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_job import check_ran, run_on_ranks

from tests.sharing import some

pytest.importorskip("mpi4py")
PROGRAM = str(Path(__file__).with_name("message_programs.py"))
WITHOUT_READING = {
    "mpich": {"MPIR_CVAR_CH4_CMA_ENABLE": "0", "MPIR_CVAR_CH4_XPMEM_ENABLE": "0"},
    "openmpi": {"OMPI_MCA_smsc": "^cma,xpmem,knem,accelerator", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", some(["moves", "gives_up"], 1))
@pytest.mark.parametrize("mpi", WITHOUT_READING)
def test_large_messages(mpi: str, case: str) -> None:
    check_ran(run_on_ranks(2, ["--mpi", mpi, PROGRAM, case], limit_s=60, environment=WITHOUT_READING[mpi]))
