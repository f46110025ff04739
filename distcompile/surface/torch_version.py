"""The version that `torch.__version__` tells: that of the torch whose names and behaviour are meant, and our own.

In: nothing. Out: `__version__`, a TorchVersion: "2.13.0+distcompile.0.1.0". It holds for `import distcompile as torch`
too: files written for torch compare `torch.__version__` before they choose names, however torch was imported. Our own
version is the local part (PEP 440), and what `importlib.metadata.version("distcompile")` says.
Source: PEP 440 for the order; torch compares its version with texts, tuples and packaging's Version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

__all__ = ["TorchVersion"]

OWN = "0.1.0"  # the one place where it stands: the wheel's metadata is made from this line
MEANT = "2.13.0"  # the torch that tests compare with
_FORM = re.compile(
    r"v?(?P<release>\d+(\.\d+)*)(?P<pre>[-_.]?(a|b|rc)\d+)?(?P<post>\.post\d+)?(?P<dev>\.dev\d+)?(\+(?P<local>[a-z0-9.]+))?",
    re.IGNORECASE,
)
_LAST = (9,)  # after every pre-release's or development version's


class TorchVersion(str):
    """A version as text that compares as a version with texts ("2.1") and tuples ((2, 1)); as text if one is none."""

    __slots__ = ()

    def __lt__(self, other: Any) -> bool:
        return self._compared(other) < 0

    def __le__(self, other: Any) -> bool:
        return self._compared(other) <= 0

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Iterable) or hasattr(other, "release")) and self._compared(other) == 0

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __gt__(self, other: Any) -> bool:
        return self._compared(other) > 0

    def __ge__(self, other: Any) -> bool:
        return self._compared(other) >= 0

    def __hash__(self) -> int:
        return str.__hash__(self)

    def _compared(self, other: Any) -> int:
        """-1, 0 or 1."""
        is_parts = isinstance(other, Iterable) and not isinstance(other, str)
        text = ".".join(map(str, other)) if is_parts else str(other)
        mine, its = _key(str(self)), _key(text)
        if mine is None or its is None:
            return (str(self) > text) - (str(self) < text)
        return (mine > its) - (mine < its)


def _key(text: str) -> tuple[Any, ...] | None:
    """What versions are ordered by: release, pre-release, post-release, development, local. None: not a version."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    release = [int(part) for part in found["release"].split(".")]
    while release and release[-1] == 0:
        release.pop()
    pre, post, dev = found["pre"], found["post"], found["dev"]
    stage: tuple[Any, ...] = _LAST
    if pre:
        name, number = re.findall("[a-z]+|[0-9]+", pre.lower())
        stage = (("a", "b", "rc").index(name), int(number))
    elif dev and not post:
        stage = (-1,)
    local = [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in (found["local"] or "").split(".")]
    return tuple(release), stage, int(post[5:]) if post else -1, (int(dev[4:]),) if dev else (2**63,), local


__version__ = TorchVersion(f"{MEANT}+distcompile.{OWN}")
