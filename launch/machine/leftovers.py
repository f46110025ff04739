"""Shared memory that a job leaves behind when it is killed: which files in /dev/shm did it make?

In: the names that appear while the job runs (inotify), and the job's processes. Out: those files removed, and only
those. MPI's shared memory has a name until MPI_Finalize (MPICH: /dev/shm/mpich_shm_*, 1 to 2 MB a job). A file is the
job's if a process of the job has it mapped or open while it lives; a name whose maker died within the millisecond is
the job's if it appeared during the job, looks like MPI's, is this user's, and nobody has it mapped. Nothing that a
living process uses is removed. Linux; elsewhere nothing is watched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
import time
from collections.abc import Iterable
from pathlib import Path

_IN_CREATE, _IN_MOVED_TO, _IN_NONBLOCK, _IN_CLOEXEC = 0x100, 0x80, 0o4000, 0o2000000  # linux/inotify.h
_HEADER = struct.Struct("iIII")
_MADE_BY_MPI = ("mpich_shm_", "mpich_shar_", "ucx_shm_", "sm_segment.", "vader_segment.", "psm2_shm", "fi_shm")
_ASK_FOR_S = 1.0  # how long to look for the maker of a new file


class SharedMemoryWatch:
    """Files made in `folder` from now on. `fileno` becomes readable when one appears."""

    def __init__(self, folder: str = "/dev/shm") -> None:
        self.folder = folder
        self.ours: set[str] = set()
        self.unclaimed: dict[str, float] = {}  # name -> when it appeared
        self.descriptor = -1
        if sys.platform == "linux" and os.path.isdir(folder):
            libc = ctypes.CDLL(None, use_errno=True)
            self.descriptor = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
            libc.inotify_add_watch(self.descriptor, os.fsencode(folder), _IN_CREATE | _IN_MOVED_TO)

    def take(self, job: Iterable[int]) -> None:
        """Note new names, and see which of the unclaimed ones belong to the processes `job`."""
        now = time.monotonic()
        for name in self._new_names():
            self.unclaimed.setdefault(name, now)
        fresh = [name for name, since in self.unclaimed.items() if now - since < _ASK_FOR_S]
        if fresh:
            used = set().union(*(used_files(pid) for pid in job))
            claimed = {name for name in fresh if os.path.join(self.folder, name) in used}
            self.ours |= claimed
            self.unclaimed = {name: since for name, since in self.unclaimed.items() if name not in claimed}

    def remove(self, *, only_mpis: bool = False) -> list[str]:
        """After the job's death: remove what it left, unless somebody uses it. Returns the names.

        only_mpis: it ended well, and what the program itself left there is meant to stay.
        """
        for name in self._new_names():
            self.unclaimed.setdefault(name, 0.0)
        orphans = {name for name in self.unclaimed if name.startswith(_MADE_BY_MPI) and self._is_mine(name)}
        named = {name for name in self.ours if not only_mpis or name.startswith(_MADE_BY_MPI)}
        left = [name for name in named | orphans if os.path.exists(os.path.join(self.folder, name))]
        if not left:
            return []
        everyone = (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
        used = set().union(*(used_files(pid) for pid in everyone))
        removed = [name for name in left if os.path.join(self.folder, name) not in used]
        for name in removed:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))
        return removed

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def _is_mine(self, name: str) -> bool:
        try:
            return os.stat(os.path.join(self.folder, name)).st_uid == os.getuid()
        except FileNotFoundError:
            return False

    def _new_names(self) -> list[str]:
        names = []
        with contextlib.suppress(BlockingIOError):
            while self.descriptor >= 0:
                data = os.read(self.descriptor, 1 << 16)
                while data:
                    _, _, _, length = _HEADER.unpack_from(data)
                    name = data[_HEADER.size : _HEADER.size + length].rstrip(b"\0")
                    names.append(os.fsdecode(name))
                    data = data[_HEADER.size + length :]
        return names


def used_files(pid: int) -> set[str]:
    """Paths that process `pid` has mapped or open; none if it is gone or another user's."""
    paths: set[str] = set()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            path = line.partition("/")[2]
            if path:
                paths.add("/" + path)
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                paths.add(os.readlink(entry.path))
    return paths
