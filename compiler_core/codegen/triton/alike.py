"""Nests that do the same on different arrays -> one launch: each program chooses its arrays by its number.

In: a kernel, and the text of its first nest. Out: the text of one function. Its programs are those of all nests, one
nest after the other; a tree of comparisons, the same for all threads of a program, puts the chosen nest's arrays in the
place of the first's. No nest touches what another writes (that is checked), so they need no order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler_core.loop_ir.ir import Kernel, Loop
from compiler_core.loop_ir.rename import Names, arrays_of, renamed, written_by


def alike(kernel: Kernel) -> Sequence[Names]:
    """For each nest of `kernel` (in a loop of one turn), the first's arrays -> its own.

    [] where there is but one, or where they differ or depend on each other.
    """
    nests = [stmt for stmt in kernel.body if isinstance(stmt, Loop) and stmt.kind == "serial" and stmt.extent == 1]
    if len(nests) < 2 or len(nests) < len(kernel.body):
        return []
    first, found = nests[0], []
    for nest in nests:
        names = dict(zip(arrays_of(first), arrays_of(nest)))
        if renamed(first, names) != nest:
            return []
        found.append(names)
    touched = [{*arrays_of(nest)} for nest in nests]
    for number, nest in enumerate(nests):
        if any(written_by(nest) & other for k, other in enumerate(touched) if k != number):
            return []
    return found


def chosen(text: str, params: Sequence[str], choices: Sequence[Names], programs: int) -> str:
    """`text`, a function for one nest in `programs` programs, for all nests. params: of the kernel, in order."""
    lines = text.split("\n")
    name = lines[1].removeprefix("def ").partition("(")[0]
    body = [line for line in lines[2:] if not line.startswith("    program = ")]
    own = [param for param in choices[0] if any(names[param] != param for names in choices)]
    head = [lines[0], f"def {name}({', '.join(params)}):", "    program = tl.program_id(0)"]
    head.append(f"    which = program // {programs}")
    tree = list(_tree(0, len(choices), choices, own, "    "))
    return "\n".join([*head, *tree, f"    program = program % {programs}", *body])


def _tree(low: int, high: int, choices: Sequence[Names], own: Sequence[str], pad: str) -> Iterator[str]:
    if high - low == 1:
        yield from (f"{pad}{param} = {choices[low][param]}" for param in own)
        return
    middle = (low + high) // 2
    yield f"{pad}if which < {middle}:"
    yield from _tree(low, middle, choices, own, pad + "    ")
    yield f"{pad}else:"
    yield from _tree(middle, high, choices, own, pad + "    ")
