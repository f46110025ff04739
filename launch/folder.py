"""A job's private folder: its socket, its status boards, and the temporary files of mpiexec.

In: nothing. Out: a path, gone when the job has ended. A launcher that was killed outright leaves its folder; the next
one removes it, for a living launcher holds a lock on a file in its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "dcrun-"
_LOCK = "lock"
_LONGEST = 70  # Unix socket paths end at about 100 bytes, and TMPDIR may be longer


class JobFolder:
    """A context: enter for the path."""

    def __enter__(self) -> str:
        base = tempfile.gettempdir() if len(tempfile.gettempdir()) < _LONGEST else "/tmp"
        sweep(Path(base))
        self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
        new = os.path.join(self.path, f"{_LOCK}.new")
        self.lock = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        os.rename(new, os.path.join(self.path, _LOCK))  # held when another launcher first sees it
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)  # a survivor may still write; it has been named
        os.close(self.lock)


def sweep(base: Path) -> None:
    """Remove this user's folders whose launcher has died."""
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or being removed by another launcher, or not locked yet
            if folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
