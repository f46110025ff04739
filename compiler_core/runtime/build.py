"""Source text to shared object: one compiler process per translation unit, side by side, then the link.

In: named translation units and the place of the result. Out: a shared object, there and complete, or an error.
Invariants: the result appears by `os.replace`, never half-written; a failed build keeps its sources and names them.
Under distcompile-run all else that the compiler writes lies in the job's folder, which goes with a job that is killed.
As many compiler processes run at once as there are units: the code generator makes no more than there are cores.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_core import log
from compiler_core.errors import CompilerFailedError
from compiler_core.runtime.toolchain import Toolchain
from compiler_core.timeline import mark

SCRATCH_VARIABLE = "DISTCOMPILE_SCRATCH"  # a folder that goes with the job, set by distcompile-run
_PREFIX = "distcompile-build-"
_ERROR_LINES = 12


def build_library(
    units: Mapping[str, str], destination: Path, toolchain: Toolchain, *, defines: Sequence[str] = ()
) -> None:
    """Compile `units` (file stem -> C++ text) and link them into `destination`.

    Raises CompilerFailedError with the compiler's first lines and the path of the kept source.
    """
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=os.environ.get(SCRATCH_VARIABLE)))
    sources = [_write(folder / f"{stem}.cpp", text) for stem, text in units.items()]
    flags = [*toolchain.flags, *(f"-D{define}" for define in defines)]
    if len(sources) == 1:
        result = _compile_and_link(toolchain, flags, sources[0])
    else:
        result = _compile_apart(toolchain, flags, sources)
    temporary = destination.with_name(f".{destination.name}.{os.getpid()}")
    shutil.move(result, temporary)
    os.replace(temporary, destination)
    shutil.rmtree(folder)


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _compile_and_link(toolchain: Toolchain, flags: Sequence[str], source: Path) -> Path:
    result = source.with_suffix(".so")
    _Running(toolchain, [*flags, "-shared", str(source), "-o", str(result), "-lm"], source.name).finish(source)
    return result


def _compile_apart(toolchain: Toolchain, flags: Sequence[str], sources: Sequence[Path]) -> Path:
    objects = [source.with_suffix(".o") for source in sources]
    running = [
        _Running(toolchain, [*flags, "-c", str(s), "-o", str(o)], s.name) for s, o in zip(sources, objects, strict=True)
    ]
    failure: CompilerFailedError | None = None
    for one, source in zip(running, sources, strict=True):  # every process is waited for, also after a failure
        try:
            one.finish(source)
        except CompilerFailedError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    result = sources[0].with_name("linked.so")
    _Running(toolchain, [*flags, "-shared", *map(str, objects), "-o", str(result), "-lm"], "link").finish(sources[0])
    return result


class _Running:
    """A compiler process. A thread takes what it says, so that of several each is known to have ended when it did."""

    def __init__(self, toolchain: Toolchain, arguments: Sequence[str], what: str) -> None:
        import subprocess  # a warm start builds nothing

        command = [toolchain.path, *arguments]
        log.emit("code", " ".join(command))
        scratch = os.environ.get(SCRATCH_VARIABLE)
        self.what, self.began_s, self.messages = what, time.perf_counter(), ""
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=None if scratch is None else {**os.environ, "TMPDIR": scratch},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        _, self.messages = self.process.communicate()
        mark("unit", self.what, "", self.began_s, time.perf_counter() - self.began_s)

    def finish(self, source: Path) -> None:
        """Wait for its end. Raises CompilerFailedError."""
        self._reader.join()
        if self.process.returncode == 0:
            return
        lines = self.messages.strip().splitlines()
        first = max(
            next((i for i, line in enumerate(lines) if "error" in line), 0) - 2, 0
        )  # the linker says why before
        shown = "\n    ".join(lines[first : first + _ERROR_LINES]) or "(no message)"
        raise CompilerFailedError(
            f"the C++ compiler failed (exit code {self.process.returncode}) on generated code",
            where=str(_kept(source)),
            got=shown,
            remedy='report this with the source file above; compile(..., backend="aot_eager") runs without native code',
        )


def _kept(source: Path) -> Path:
    """Where a source that does not compile stays, also after its job."""
    if SCRATCH_VARIABLE not in os.environ:
        return source
    return Path(shutil.copy(source, tempfile.mkdtemp(prefix=_PREFIX)))
