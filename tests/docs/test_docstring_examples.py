"""Examples in docstrings: what a public class, method or function shows with `>>>` is run, and prints what it says.

In: the public names of nn, nn.functional, nn.init, optim and its modules, distributed, ddp, data and parity, and some
of torch's own. Out: a test a name that has an example. Examples are written as a script is that imports torch: `torch`,
`nn`, `F`, `optim`, `dist` are there.
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from types import ModuleType

import pytest

import distcompile
from distcompile import data, ddp, distributed, nn, optim, parity
from distcompile.nn import functional, init
from distcompile.optim import lr_scheduler, swa_utils

MODULES = (nn, functional, init, optim, lr_scheduler, swa_utils, distributed, ddp, data, parity)
ALONE = ("compile", "save", "load")  # of the many names of `torch` itself
NAMES = {"torch": distcompile, "nn": nn, "F": functional, "optim": optim, "dist": distributed}
OURS = ("distcompile.", "compiler_core.", "collectives.")


def public_names(module: ModuleType) -> list[str]:
    told = getattr(module, "__all__", None)
    return sorted(told if told is not None else (name for name in vars(module) if not name.startswith("_")))


def documented() -> Iterator[tuple[str, object]]:
    """(name, thing) of every public class and function, and of the classes' public methods, theirs or a base's."""
    yield from ((f"distcompile.{name}", getattr(distcompile, name)) for name in ALONE)
    for module in MODULES:
        for name in public_names(module):
            thing = getattr(module, name)
            if isinstance(thing, ModuleType) or not getattr(thing, "__module__", "").startswith(OURS):
                continue
            yield f"{module.__name__}.{name}", thing
            for base in inspect.getmro(thing) if inspect.isclass(thing) else ():
                if base.__module__.startswith(OURS):
                    methods = (key for key, value in vars(base).items() if is_method(key, value))
                    yield from ((f"{base.__name__}.{key}", vars(base)[key]) for key in methods)


def is_method(name: str, value: object) -> bool:
    function = callable(value) and not inspect.isclass(value)
    return not name.startswith("_") and (function or isinstance(value, property | classmethod | staticmethod))


def examples() -> dict[str, str]:
    """Name -> docstring, for those that show an example; once, under the first name that has it."""
    found: dict[str, str] = {}
    for name, thing in documented():
        text = inspect.getdoc(thing) or ""
        if ">>>" in text:
            found.setdefault(text, name)
    return {name: text for text, name in found.items()}


EXAMPLES = examples()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_prints_what_it_says(name: str) -> None:
    assert (wrong := run(name, EXAMPLES[name])) == "", wrong


def run(name: str, text: str) -> str:
    """What doctest has to say against the examples of a docstring: "" if nothing."""
    distcompile.manual_seed(0)
    told: list[str] = []
    test = doctest.DocTestParser().get_doctest(text, dict(NAMES), name, None, 0)
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
    return "".join(told)


def test_every_class_shows_an_example() -> None:
    """Each of nn and optim in its own docstring, not its base's."""
    found = {name: getattr(module, name) for module in (nn, optim, lr_scheduler) for name in public_names(module)}
    classes = {name: thing for name, thing in found.items() if inspect.isclass(thing)}
    assert len(classes) > 150
    assert [name for name, thing in classes.items() if ">>>" not in (vars(thing).get("__doc__") or "")] == []


def test_an_example_can_fail() -> None:
    assert run("right", ">>> torch.ones(2)\ntensor([1., 1.])\n") == ""
    assert "tensor([1., 1.])" in run("wrong", ">>> torch.ones(2)\ntensor([0., 0.])\n")
    assert "ZeroDivisionError" in run("raises", ">>> 1 / 0\n")
