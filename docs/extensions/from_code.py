"""Directives of the site whose text is the code's own: modules, knobs, errors, commands. Nothing is typed twice.

    {api} distcompile.nn        every public name of a module: signature and docstring
    {knobs}                     every environment variable: from its declaration
    {errors}                    every class of error and warning: from the catalogues
    {command} distcompile tune  what the command says with --help
    {head} distcompile.hub      what a file says about itself on its first lines
    {operations}                every primitive of the registry
    {functions}                 every row of torch's tables: the names and forms of a function
    {examples}                  the first line of every example, and the commands that start it

In: the modules, imported. Out: Markdown, parsed where the directive stands. Docstrings are taken as plain text:
`code` and lists are kept, indented lines are shown as they are, everything else that Markdown would read is escaped.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PACKAGES = ("distcompile", "compiler_core", "collectives", "launch")
ROOT = Path(__file__).resolve().parents[2]
SPECIAL = re.compile(r"([\\*_{}\[\]<>#|$~^])")


def as_markdown(text: str) -> str:
    """A docstring, as Markdown that shows what it says."""
    out: list[str] = []
    literal = False
    for line in inspect.cleandoc(text).splitlines():
        indented = line.startswith("  ") and not line.lstrip().startswith(("- ", "* "))
        if indented != literal and line.strip():
            in_list = indented and out and out[-1].lstrip().startswith("- ")
            if in_list:
                indented = False
            else:
                out += ["", "```text"] if indented else ["```", ""]
                literal = indented
        out.append(line if literal else escape(line))
    return "\n".join([*out, *(["```"] if literal else [])])


def escape(line: str) -> str:
    """What stands between backticks stays; the rest means nothing to Markdown."""
    parts = line.split("`")
    if len(parts) % 2 == 0:  # a backtick alone
        return SPECIAL.sub(r"\\\1", line).replace("`", "\\`")
    return "`".join(part if k % 2 else SPECIAL.sub(r"\\\1", part) for k, part in enumerate(parts))


def signature_of(thing: object) -> str:
    """Parameters and defaults, as in the source; "(...)" where Python does not know."""
    try:
        signature = inspect.signature(thing)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return "(...)"
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name not in ("self", "cls")]
    text = str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    return re.sub(r"<[^<>]*>", "...", text)


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or what the module itself defines."""
    told = getattr(module, "__all__", None)
    if told is not None:
        return sorted(told)
    return [
        name
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def describe(module: ModuleType) -> Iterator[str]:
    """Markdown for every public name of the module that is a class or a function."""
    for name in public_names(module):
        thing = getattr(module, name)
        kind = "class" if inspect.isclass(thing) else "function" if callable(thing) else ""
        if kind:
            yield from entry(kind, f"{module.__name__}.{name}", thing, methods_of(thing) if kind == "class" else [])


def methods_of(cls: type) -> list[tuple[str, object]]:
    """Public methods and properties that the class defines, and says something about."""
    return [
        (name, value)
        for name, value in sorted(vars(cls).items())
        if not name.startswith("_") and callable(value) and inspect.getdoc(value)
    ]


def entry(kind: str, name: str, thing: object, methods: list[tuple[str, object]]) -> Iterator[str]:
    own = inspect.getdoc(thing) if kind != "class" or vars(thing).get("__doc__") else ""  # not its base's
    yield f"::::::{{py:{kind}}} {name}{signature_of(thing)}"
    yield as_markdown(own or "")
    for method, value in methods:
        yield f":::::{{py:method}} {method}{signature_of(value)}"
        yield as_markdown(inspect.getdoc(value) or "")
        yield ":::::"
    if bases := inherited_from(thing, name.rpartition(".")[0]):
        yield f"Its other methods are those of {' and '.join(f'`{base.__name__}`' for base in bases)}."
    yield "::::::\n"


def inherited_from(thing: object, module: str) -> list[type]:
    """The bases of a class that the same page describes."""
    bases = inspect.getmro(thing)[1:] if inspect.isclass(thing) else ()
    shown = public_names(importlib.import_module(module))
    return [base for base in bases if base.__name__ in shown and methods_of(base)]


class FromCode(SphinxDirective):
    """A directive whose content is Markdown that a function makes."""

    required_arguments = 0
    optional_arguments = 8

    def make(self) -> Iterator[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(self.make()))


class Api(FromCode):
    def make(self) -> Iterator[str]:
        return describe(importlib.import_module(self.arguments[0]))


class Knobs(FromCode):
    def make(self) -> Iterator[str]:
        from compiler_core.config import Config

        yield "| variable | `config.` | default | what | changes generated code |"
        yield "|---|---|---|---|---|"
        for name, knob in Config.knobs().items():
            codegen = "yes" if knob.affects_codegen else ""
            yield f"| `{knob.env}` | `{name}` | {shown(knob.default)} | {escape(knob.__doc__ or '')} | {codegen} |"


def shown(default: object) -> str:
    """A default as one would write it; a home is `~`."""
    if isinstance(default, frozenset):
        return ",".join(sorted(default))
    if isinstance(default, bool):
        return str(int(default))
    text = str(default).replace(os.path.expanduser("~"), "~") if default not in (None, "") else ""
    return f"`{text}`" if text else ""


def catalogues() -> list[str]:
    """The modules in which errors are declared."""
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("errors.py"))
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]


def errors_of(module: ModuleType) -> list[type]:
    """Classes of errors and warnings that the module declares, in its order."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == module.__name__
    ]


class Errors(FromCode):
    def make(self) -> Iterator[str]:
        for name in catalogues():
            found = errors_of(importlib.import_module(name))
            if not found:
                continue
            yield f"\n**`{name}`**\n\n| error | is a | means |\n|---|---|---|"
            for error in found:
                bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
                text = " ".join(inspect.cleandoc(vars(error).get("__doc__") or "").split())
                yield f"| `{error.__name__}` | {bases} | {escape(text)} |"


def parser_of_distcompile() -> argparse.ArgumentParser:
    from distcompile.cli import build_parser

    return build_parser()


def parser_of_launcher() -> argparse.ArgumentParser:
    from launch.options import build_parser

    return build_parser()


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "distcompile": parser_of_distcompile,
    "distcompile-run": parser_of_launcher,
}


class Command(FromCode):
    def make(self) -> Iterator[str]:
        os.environ["COLUMNS"] = "110"
        program, *words = self.arguments
        parser = PARSERS[program]()
        for word in words:
            parser = subcommands(parser)[word]
        yield f"```text\n{parser.format_help()}```"


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next(a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction))


class Head(FromCode):
    def make(self) -> Iterator[str]:
        return iter([as_markdown(importlib.import_module(self.arguments[0]).__doc__ or "")])


class Operations(FromCode):
    def make(self) -> Iterator[str]:
        from compiler_core import ops  # importing it registers the primitives
        from compiler_core.aot import boundary  # two more
        from compiler_core.ops.registry import OPS, NotDifferentiable

        assert ops
        assert boundary
        yield "| operation | set | operands | dtypes | gradient | lowering |"
        yield "|---|---|---|---|---|---|"
        for name, op in sorted(OPS.items()):
            gradient = f"none: {escape(op.vjp.why)}" if isinstance(op.vjp, NotDifferentiable) else "yes"
            dtypes = " ".join(dtype.short for dtype in op.dtypes)
            count = len(op.samples[0].shapes) or "-"
            yield f"| `{name}` | {set_of(op.engines)} | {count} | {dtypes} | {gradient} | `{type(op.lower).__name__}` |"


def set_of(rule: object) -> str:
    """Whether an op is of the core set, what becomes of it, or why neither."""
    from compiler_core.ops.rules import Core, OwnCode

    if isinstance(rule, OwnCode):
        return f"own: {escape(rule.why)}"
    return "core" if isinstance(rule, Core) else "decomposed"


class Functions(FromCode):
    def make(self) -> Iterator[str]:
        from distcompile.surface.names import ROWS

        yield "| functions | methods | NumPy | file |"
        yield "|---|---|---|---|"
        for row in ROWS:
            found: Any = importlib.import_module(row.module)
            for part in row.inner.split("."):
                found = getattr(found, part)
            if inspect.isfunction(found) and (row.names or row.methods):
                columns = (row.names, (*row.methods, *row.twins), [f"np.{name}" for name in row.ufuncs])
                shown = (" ".join(f"`{name}`" for name in names) for names in columns)
                yield f"| {' | '.join(shown)} | `{row.module.replace('.', '/')}.py` |"


class Examples(FromCode):
    def make(self) -> Iterator[str]:
        for path in sorted((ROOT / "examples").glob("*.py")):
            head = inspect.cleandoc(ast.get_docstring(ast.parse(path.read_text())) or "")
            yield f"**`examples/{path.name}`**\n\n{as_markdown(head)}\n"


def setup(app: Sphinx) -> dict[str, Any]:
    for directive in (Api, Knobs, Errors, Command, Head, Operations, Functions, Examples):
        app.add_directive(directive.__name__.lower(), directive)
    return {"parallel_read_safe": True}
