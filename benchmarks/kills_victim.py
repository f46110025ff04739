"""The program that `kills.py` kills: trains a small model on all ranks, and one rank ends as it is told to.

    kills_victim.py HOW PHASE DELAY_S RANK FOLDER     HOW: SIGKILL, SIGSEGV, SIGSTOP, exit0, exit3, exception

In: how, from the beginning of which phase, how much later, which rank. Out: FOLDER/done, the time (CLOCK_MONOTONIC)
right before the deed; FOLDER/shm-R, the names of rank R's shared memory. Phases follow one another; a deed may thus
fall into a later phase than the one it was timed from. The collectives never end by themselves.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from pathlib import Path

HOW, PHASE, DELAY_S, RANK, FOLDER = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5])
AM_VICTIM = int(os.environ["RANK"]) == RANK


def die() -> None:
    """The deed."""
    (FOLDER / "done").write_text(str(time.monotonic()))
    if HOW.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[HOW])
    elif HOW.startswith("exit"):
        os._exit(int(HOW[4:]))
    raise ValueError("the deed")


def later() -> None:
    time.sleep(DELAY_S)
    die()


def phase(name: str) -> None:
    """A phase begins: if it is the one, the deed is timed from here. An exception comes from the main thread."""
    if not AM_VICTIM or name != PHASE:
        return
    if HOW == "exception":
        later()
    elif name == "finalize":
        atexit.register(later)
    else:
        threading.Thread(target=later, daemon=True).start()


def note_shared_memory() -> None:
    lines = Path("/proc/self/maps").read_text().splitlines()
    names = {"/" + line.partition("/")[2] for line in lines if "/dev/shm/" in line and "(deleted)" not in line}
    (FOLDER / f"shm-{os.environ['RANK']}").write_text("\n".join(names))


def main() -> None:
    phase("import")
    import distcompile as torch
    from distcompile import nn
    from distcompile.nn.parallel import DistributedDataParallel

    phase("init")
    torch.distributed.init_process_group()
    note_shared_memory()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
    phase("compile")
    step = torch.compile(model) if PHASE == "compile" else model
    begun = time.monotonic()
    x = torch.randn(4, 16)
    step(x).square().mean().backward()
    phase("collective")
    phase("output")
    goes_on = True
    while goes_on:
        step(x).square().mean().backward()
        if PHASE == "output":
            sys.stdout.write("much to say " * 500 + "\n")
        wishes = torch.tensor([float(PHASE != "finalize" or time.monotonic() < begun + 0.3)])
        torch.distributed.all_reduce(wishes)
        goes_on = wishes.item() > 0  # alike on all ranks
    phase("finalize")


if __name__ == "__main__":
    main()
