"""A command line that says what was probably meant: of an unknown option or command, the nearest that there is.

In: declarations, as argparse takes them. Out: an `argparse.ArgumentParser`; misuse ends the process with code 2.
Method: edit similarity of names, by difflib.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

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
        super().error(message + (nearest(misspelt["word"], commands) if misspelt else ""))

    def _meant(self, unknown: Sequence[str]) -> str:
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        return nearest(options[0], self._option_string_actions) if options else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """ "; did you mean X?", or nothing if no name is near."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""
