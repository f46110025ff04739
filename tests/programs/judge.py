"""What torch makes of the programs, written to torch_table.json: `python -m tests.programs.judge` (torch installed).

Out: for each program "one graph" (torch.compile(fullgraph=True) captures everything that it compiles), or why not; and
"wrong: ..." where torch.compile's results are not those of torch eager. torch_table_of.json: which text of the program
and which torch that was found of, so that only what has changed needs to be judged again.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import warnings
from pathlib import Path
from typing import Any

from tests.programs.harness import Entry, Program, difference, everything, run

TABLE = Path(__file__).parent / "torch_table.json"
TABLE_OF = TABLE.with_name("torch_table_of.json")


def table(path: Path = TABLE) -> dict[str, str]:
    """The committed judgement."""
    return json.loads(path.read_text()) if path.exists() else {}


def judged(entry: Entry, torch: Any) -> str:
    """What a judgement depends on, in short: the program's text and the version of torch."""
    text = f"{torch.__version__.partition('+')[0]}\n{inspect.getsource(entry.run)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Watched:
    """torch.compile(fullgraph=True), which remembers that it refused: programs may catch what it raises."""

    def __init__(self, torch: Any, refusals: tuple[type[BaseException], ...], **options: Any) -> None:
        self.torch, self.kinds, self.options = torch, refusals, options
        self.refused = ""

    def __call__(self, fn: Any = None, **more: Any) -> Any:
        if fn is None:
            return lambda fn: self(fn, **more)
        compiled = self.torch.compile(fn, **(self.options | more))
        return WatchedCall(compiled, self)


class WatchedCall:
    """A compiled function or module. Attributes are the compiled one's."""

    def __init__(self, compiled: Any, watch: Watched) -> None:
        object.__setattr__(self, "_parts", (compiled, watch))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        compiled, watch = self._parts
        try:
            return compiled(*args, **kwargs)
        except watch.kinds as error:
            watch.refused = watch.refused or f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            raise

    def __get__(self, owner: Any, kind: type) -> Any:
        return self if owner is None else lambda *args, **kwargs: self(owner, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parts[0], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._parts[0], name, value)


def judgement(entry: Entry, torch: Any) -> str:
    """What torch.compile makes of one program."""
    torch.compiler.reset()
    whole = Watched(torch, (torch._dynamo.exc.TorchDynamoException,), backend="eager", fullgraph=True)
    run(entry, torch, whole)
    verdict = f"breaks: {whole.refused[:150]}" if whole.refused else "one graph"
    torch.compiler.reset()
    compiled = run(entry, torch, lambda fn=None, **more: torch.compile(fn, backend="eager", **more))
    wrong = difference(compiled, run(entry, torch, plain_call))
    return f"{verdict}; wrong: {wrong[:150]}" if wrong else verdict


def plain_call(fn: Any = None, **options: Any) -> Any:
    """compile() that does not."""
    return fn if fn is not None else lambda fn: fn


def main() -> None:
    import torch

    warnings.simplefilter("ignore")
    known, known_of = (table(), table(TABLE_OF)) if "--all" not in sys.argv else ({}, {})
    programs: dict[str, Entry] = everything()
    of = {name: judged(entry, torch) for name, entry in programs.items()}
    found = {}
    for name, entry in programs.items():
        is_known = name in known and of[name] == known_of.get(name)
        found[name] = known[name] if is_known else judgement(entry, torch)
        if not is_known:
            print(f"{name}: {found[name]}", flush=True)
    for path, words in ((TABLE, found), (TABLE_OF, of)):
        path.write_text(json.dumps(words, indent=0, sort_keys=True) + "\n")
    print(f"{sum(v.startswith('one graph') for v in found.values())} of {len(found)} in one graph")


if __name__ == "__main__":
    main()
__all__ = ["TABLE_OF", "Program", "judged", "judgement", "plain_call", "table"]
