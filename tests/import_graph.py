"""Who imports whom among our files, read from the sources: statements, also inside functions, and names of modules.

In: the sources. Out: `imports(path)`, (module, line) of every import of a file, and `graph()`, an edge for each.
A string that is the name of one of our modules (or `module:name`) counts as an import of it, wherever it stands but in
a docstring: it will be given to `import_module`. Where a file makes names with `f"compiler_core.{...}"`, each word of
its strings that gives a module with that beginning counts too. Imports for type checkers do not count.
Known limit: names that are put together otherwise are not seen; `test_layers.py` lists the calls of `import_module`
whose argument is none of these.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("distcompile", "compiler_core", "collectives", "launch")


def sources(root: Path = ROOT) -> list[Path]:
    """The files of the four packages."""
    return sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))


def module_of(path: Path, root: Path = ROOT) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


LEAVES = {ast.Load, ast.Store, ast.Del, ast.Name}


@cache
def modules(root: Path = ROOT) -> dict[str, Path]:
    """Dotted name -> file."""
    return {module_of(path, root): path for path in sources(root)}


@cache
def tree(path: Path) -> ast.Module:
    """A file, parsed."""
    return ast.parse(path.read_text())


@cache
def nodes_that_run(path: Path) -> list[ast.AST]:
    """Every node of a file but what only type checkers read, docstrings, and names."""
    found: list[ast.AST] = []
    open_ends: list[ast.AST] = [tree(path)]
    while open_ends:
        node = open_ends.pop()
        body = getattr(node, "body", None)
        doc = body[0] if isinstance(body, list) and body and _is_string(body[0]) else None
        for name in node._fields:
            value = getattr(node, name)
            for child in value if type(value) is list else (value,):
                if not isinstance(child, ast.AST) or type(child) in LEAVES or child is doc:
                    continue
                if type(child) is not ast.If or not _is_for_type_checkers(child):
                    found.append(child)
                    open_ends.append(child)
    return found


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_for_type_checkers(node: ast.If) -> bool:
    return "TYPE_CHECKING" in ast.dump(node.test)


def statements(path: Path, root: Path = ROOT) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of every import statement; `from a import b` counts as a.b, for b may be a module."""
    package = path.relative_to(root).parent.parts
    for node in nodes_that_run(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def strings(path: Path, root: Path = ROOT) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of every module of ours that a string names."""
    known, running = modules(root), nodes_that_run(path)
    texts = [(n.value, n.lineno) for n in running if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    beginnings = {b for node in running if isinstance(node, ast.JoinedStr) for b in _beginning(node)}
    for text, line in texts:
        words = {beginning + word for beginning in beginnings for word in re.split(r"[\s:]+", text)}
        for name in sorted({text.partition(":")[0], *words}):
            if "." in name and name in known:
                yield name, line


def _beginning(node: ast.JoinedStr) -> Iterator[str]:
    """`compiler_core.ops.` of f"compiler_core.ops.{name}"."""
    first = node.values[0]
    if isinstance(first, ast.Constant) and str(first.value).partition(".")[0] in PACKAGES and first.value[-1] == ".":
        yield first.value


def imports(path: Path, root: Path = ROOT) -> list[tuple[str, int]]:
    """(dotted name, line) of everything that `path` imports, or names."""
    return [*statements(path, root), *strings(path, root)]


def graph(root: Path = ROOT) -> nx.DiGraph:
    """An edge from each file to each that it imports. An edge's `lines`: where."""
    found: nx.DiGraph = nx.DiGraph()
    for module, path in modules(root).items():
        found.add_node(module)
        for name, line in imports(path, root):
            target = _existing(name, root)
            if "." in target and target != module:
                found.add_edge(module, target)
                found.edges[module, target].setdefault("lines", []).append(line)
    return found


def _existing(name: str, root: Path) -> str:
    """The module that the name of a module, or of something in one, means; "" for one that is not ours."""
    while name and name not in modules(root):
        name = name.rpartition(".")[0]
    return name
