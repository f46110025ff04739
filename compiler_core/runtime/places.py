"""Where compiled artefacts are kept, where they cannot be kept, and how of many processes one builds.

In: `config.cache_dir`. Out: folders to try, in order: that one, one of this user's in the temporary directory, one of
this process that goes when it ends. `builder_lock`: a lock of the kernel, so that a holder that dies lets go.
A folder that others could write to is never taken: what lies in it is loaded as code. A folder on a file system mounted
noexec is of no use either. Limits: Linux and macOS. Without locks (some network file systems), or once a holder has
taken LOCK_LIMIT_S, processes build side by side: entries appear by rename, so that is a waste, and no fault.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from compiler_core import log
from compiler_core.config import Config, config

ROOTS = 3
LEAST_FREE_NBYTES = 1 << 20
LOCK_LIMIT_S = 900.0
_LOOK_EVERY_S = 0.05
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EIO}


def root(number: int) -> Path:
    """The folder to try as the `number`-th of ROOTS. The last one is made by asking. Raises OSError."""
    if number == 0:
        return config.cache_dir
    if number == 1:
        return Path(tempfile.gettempdir()) / f"distcompile-cache-{os.getuid()}"
    return private_folder()


def lasting_roots() -> list[Path]:
    """The folders in which an earlier process may have left entries."""
    try:
        fallback = root(1)
        check_owner(fallback)
    except OSError:
        return [config.cache_dir]
    return [config.cache_dir, fallback]


def kept_roots() -> list[Path]:
    """The folders that are counted and cleared: who set DISTCOMPILE_CACHE_DIR means that one, and it alone."""
    return [config.cache_dir] if os.environ.get(Config.cache_dir.env) else lasting_roots()


@cache
def private_folder() -> Path:
    """A folder of this process alone, removed when it ends. Raises OSError."""
    folder = Path(tempfile.mkdtemp(prefix="distcompile-nocache-"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a forked child leaves it alone
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def check_owner(folder: Path) -> None:
    """Raises OSError unless it is a folder that nobody else can write to."""
    facts = os.lstat(folder)
    if not stat.S_ISDIR(facts.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "others may write there", str(folder))


def check_usable(folder: Path) -> None:
    """Make the folder if need be. Raises OSError unless it has room, and is a safe place for code that is to run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder != config.cache_dir:  # that one is the user's choice
        check_owner(folder)
    disk = os.statvfs(folder)
    if hasattr(os, "ST_NOEXEC") and disk.f_flag & os.ST_NOEXEC:
        raise PermissionError(errno.EACCES, "it is mounted noexec: code there cannot run", str(folder))
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < LEAST_FREE_NBYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


@contextmanager
def builder_lock(path: Path) -> Iterator[bool]:
    """Be the only process that builds what `path` stands for; False if there are no locks here. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _wait_for_lock(descriptor, path)
    finally:
        os.close(descriptor)  # which lets go


def _wait_for_lock(descriptor: int, path: Path) -> bool:
    deadline_s = time.monotonic() + LOCK_LIMIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                what = f"another process has been building for {LOCK_LIMIT_S:g} s and holds {path}: not waiting for it"
                log.warn_once(f"held {path}", what)
                return False
            time.sleep(_LOOK_EVERY_S)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            log.warn_once(
                f"no locks {path.parent}",
                f"files in {path.parent} cannot be locked ({error.strerror}): processes may compile one thing at once",
            )
            return False
