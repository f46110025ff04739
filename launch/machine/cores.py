"""Which cores are other jobs on this host bound to? A registry, so that two jobs do not share cores unless told.

In: the hardware threads that this job may use. Out: those of them that no other job holds, taken until `release`. One
file a job in a folder of this user's; a living launcher holds a lock on its file, so the file of a dead one counts
for nothing and is removed. One more lock keeps two starting jobs from taking the same cores. A job that cores are
named for (`--bind LIST`) shares them if another has them: it was told to.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from launch.machine.binding import cores_of

VARIABLE = "DISTCOMPILE_RUN_CORES"  # another folder, for tests


def registry_folder() -> Path:
    """This user's, on this host."""
    told = os.environ.get(VARIABLE)
    return Path(told) if told else Path(tempfile.gettempdir()) / f"distcompile-run-cores-{os.getuid()}"


class CoreClaim:
    """The cores of one job. `cpus` is empty if there were not enough."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or registry_folder()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.file = self.folder / f"{os.getpid()}"
        self.descriptor = -1
        self.cpus: tuple[int, ...] = ()

    def take(self, allowed: Sequence[int], least: int, cores: int = 0) -> tuple[int, ...]:
        """Claim what is free of `allowed`, if that is at least `least` hardware threads; else nothing.

        cores: leave what is beyond this many cores to others; 0: take all.
        """
        with self._alone():
            held = self._held()
            units = cores_of([cpu for cpu in allowed if cpu not in held])
            free = [cpu for unit in units[: cores or None] for cpu in unit]
            if len(free) >= least:
                self._write(free)
        return self.cpus

    def take_these(self, cpus: Sequence[int]) -> None:
        """Claim `cpus`, whoever else has them."""
        with self._alone():
            self._write(cpus)

    def release(self) -> None:
        if self.descriptor >= 0:
            self.file.unlink(missing_ok=True)
            os.close(self.descriptor)
            self.descriptor = -1

    def _write(self, cpus: Sequence[int]) -> None:
        self.cpus = tuple(cpus)
        self.descriptor = os.open(self.file, os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        os.write(self.descriptor, ",".join(map(str, cpus)).encode())

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _held(self) -> set[int]:
        """What living jobs hold; files of dead ones are removed."""
        held: set[int] = set()
        for file in self.folder.glob("[0-9]*"):
            try:
                descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:  # its job has just ended
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.unlink()
            except BlockingIOError:
                text = os.read(descriptor, 1 << 16).decode()
                held.update(int(cpu) for cpu in text.split(",") if cpu)
            finally:
                os.close(descriptor)
        return held
