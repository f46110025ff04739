"""A command line that says what was probably meant, and takes no number or file that the work would fail on later.

In: declarations, as argparse takes them. Out: an `argparse.ArgumentParser`; misuse ends the process with code 2.
Values are checked as they are read: `at_least`, `amount`, `writable`.
"""

from __future__ import annotations

import argparse
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from compiler_core.names.nearest import nearest

_COMMAND = re.compile(r"invalid choice: '(?P<word>[^']*)'")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors suggest; options may not be shortened, so that a new one breaks no script."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but what a command does not know is an error of that command, which knows its own options."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown: {' '.join(unknown)}{self._meant(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """argparse's message, and a suggestion where a command is misspelt."""
        misspelt = _COMMAND.search(message)
        commands = [name for action in self._actions if isinstance(action.choices, dict) for name in action.choices]
        super().error(message + (suggestion(misspelt["word"], commands) if misspelt else ""))

    def _meant(self, unknown: Sequence[str]) -> str:
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        return suggestion(options[0], self._option_string_actions) if options else ""


def suggestion(word: str, known: Iterable[str]) -> str:
    """ "; did you mean X?", or nothing if no name is near."""
    found = nearest(word, known)
    return f"; did you mean {found}?" if found else ""


def at_least(least: int) -> Callable[[str], int]:
    """An option's type: a whole number, `least` or more."""

    def whole(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, {least} or more")
        return number

    return whole


def amount(text: str) -> float:
    """An option's type: a finite number, 0 or more."""
    number = _finite(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a finite number, 0 or more")
    return number


def above_zero(text: str) -> float:
    """An option's type: a finite number above 0."""
    number = _finite(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a finite number above 0")
    return number


def _finite(text: str) -> float:
    """NaN, which passes no comparison, for what is no finite number."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def writable(text: str) -> str:
    """An option's type: a file that can be written. A trial says so; it changes no file, and leaves none."""
    path = Path(text)
    try:
        if path.exists():
            path.open("ab").close()
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be written: {error.strerror}") from error
    return text


def writable_folder(text: str) -> str:
    """An option's type: a folder that is there, or is made now, and can be written."""
    try:
        Path(text).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=text).close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be written: {error.strerror}") from error
    return text


def seed(text: str) -> int:
    """An option's type: a seed, which has 64 bits."""
    number = at_least(0)(text)
    if number >= 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a seed below 2**64")
    return number
