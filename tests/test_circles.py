"""Circles of imports: none between two rooms.

A room is a folder of compiler_core/ or distcompile/; the loose files beside these folders are one more room of each;
collectives/ and launch/ are rooms. What a file imports says `import_graph.py`: also inside functions, and by name.
"""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest
from import_graph import ROOT, graph, module_of, modules

# files that only say where names are, and import nothing of it themselves
TABLES = {"compiler_core.torch_table", "distcompile.surface.names"}
# (importing file, file that it names): the name is said, and not imported (test_layers.py, SAID)
SAID = {
    ("compiler_core.tensor.making.legacy_types", "distcompile.cuda"),
    ("compiler_core.sparse.types", "distcompile.sparse"),
}
# rooms of a circle that is known, and why it stays; the list may only become shorter
KNOWN: dict[frozenset[str], str] = {}


def room_of(module: str) -> str:
    """`compiler_core/ops`, and `compiler_core` of a file that is in no folder of it."""
    package, *folders = modules()[module].relative_to(ROOT).parent.parts
    return "/".join([package, *folders[:1]])


def circles(imports: nx.DiGraph, room: dict[str, str]) -> dict[frozenset[str], list[str]]:
    """Rooms -> the imports that close a circle between them."""
    found = {}
    for files in nx.strongly_connected_components(imports):
        rooms = frozenset(room[file] for file in files)
        if len(rooms) > 1:
            between = [(a, b) for a, b in imports.subgraph(files).edges if room[a] != room[b]]
            found[rooms] = [f"{a} -> {b} (line {imports.edges[a, b]['lines'][0]})" for a, b in sorted(between)]
    return found


@pytest.fixture(scope="module")
def imports() -> nx.DiGraph:
    found = graph()
    found.remove_nodes_from(TABLES)
    found.remove_edges_from(SAID)
    return found


def test_no_circle_goes_through_two_rooms(imports: nx.DiGraph) -> None:
    found = circles(imports, {module: room_of(module) for module in imports})
    assert {rooms: lines for rooms, lines in found.items() if rooms not in KNOWN} == {}
    assert KNOWN.keys() <= found.keys(), "a circle that is no more stands in KNOWN"


def test_what_ddp_keeps_and_what_uses_it_do_not_import_each_other(imports: nx.DiGraph) -> None:
    assert "distcompile.ddp.passes" not in nx.descendants(imports, "distcompile.ddp.books")


def test_tables_import_nothing() -> None:
    """They are left out above, so they must do nothing but say names."""
    for module in TABLES:
        text = modules()[module].read_text()
        assert "import_module" not in text
        assert "    from " not in text


def test_a_circle_is_found(tmp_path: Path) -> None:
    for name, text in {
        "compiler_core/a/one.py": "def f():\n    from compiler_core.b import two\n",
        "compiler_core/b/two.py": "PLACE = 'compiler_core.c.three:name'\n",
        "compiler_core/c/three.py": "NAMES = 'one other'\ndef g(name):\n    import_module(f'compiler_core.a.{name}')\n",
        "compiler_core/d/four.py": "if TYPE_CHECKING:\n    from compiler_core.d import five\n",
        "compiler_core/d/five.py": "from compiler_core.d.four import x\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = graph(tmp_path)
    room = {module_of(p, tmp_path): p.parent.name for p in modules(tmp_path).values()}
    assert list(circles(found, room)) == [frozenset("abc")]
