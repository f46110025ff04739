"""The code blocks of the pages, and how each is tried: a page that shows code or output is a test.

In: Markdown files. Out: `blocks(page)`, and `try_page(page, folder)`, which raises AssertionError at the first block
that is not true. What a block is stands in a comment on the line above its fence, `<!-- kind -->`:

    (none), python          runs; all such blocks of a page run in order, in one process
    output                  what the python block before it printed
    file NAME               is a file in the folder in which the page runs, beside examples/
    printed by COMMAND      runs the command there, and is what it prints on stdout
    runs                    a shell command each line, of which nothing is compared
    same as PATH            is the end of that file of the repository
    excerpt of PATH         stands in that file
    generated NAME          another test makes it (test_generated_blocks.py)
    not run: REASON         needs a device, several hosts, a network; python must still compile

A page may say `<!-- needs PACKAGE ... -->`: where one is not installed, it is not tried.
Output: `...` stands for any text; numbers with a decimal point agree to 5 %; lines of ranks are sorted by rank.
Invariant: a block of no kind is an error, so nothing on a page goes unlooked at.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
NOTE = r"^(?P<indent> *)(?:<!-- (?P<note>[^\n]*?) -->\n *)?"
FENCED = re.compile(NOTE + r"```(?P<language>[\w{}-]*)[^\n]*\n(?P<text>.*?)^ *```$", re.M | re.S)
NUMBER = re.compile(r"\d+\.\d+(?:e[+-]\d+)?")
MARK = "\x1e"  # between what one block prints and what the next does
TIMEOUT_S = 240

# Runs python blocks one after the other, as if the page were the program: a traceback shows the page's lines.
DRIVER = f"""
import json, sys
page, blocks = json.load(open(sys.argv[1]))
names = {{"__name__": "__main__"}}
for line, text in blocks:
    exec(compile("\\n" * line + text, page, "exec"), names)
    print({MARK!r}, end="", flush=True)
"""


@dataclass(frozen=True)
class Block:
    """A fenced block. line: how many lines of the page stand before its text; note: its kind, "" if none is said."""

    line: int
    language: str
    note: str
    text: str

    def has(self, kind: str) -> bool:
        return self.note == kind or self.note.startswith(kind + " ")

    def argument(self, kind: str) -> str:
        return self.note.removeprefix(kind).strip()


def blocks(page: Path) -> list[Block]:
    """Every fenced block but directives of the site."""
    text = page.read_text()
    found = [
        Block(
            text.count("\n", 0, m.start("text")),
            m["language"],
            m["note"] or "",
            re.sub(f"^{m['indent']}", "", m["text"], flags=re.M),
        )
        for m in FENCED.finditer(text)
    ]
    return [block for block in found if not block.language.startswith("{")]


KINDS = ("output", "file", "printed by", "runs", "same as", "excerpt of", "generated", "not run:")


def name(page: Path) -> str:
    """Its path in the repository."""
    return str(page.relative_to(ROOT))


def is_run(block: Block) -> bool:
    return not block.note and block.language == "python"


def of_no_kind(page: Path) -> list[str]:
    """Where a block does not say what it is."""
    return [
        f"{page.relative_to(ROOT)}:{block.line}"
        for block in blocks(page)
        if not is_run(block) and not any(block.has(kind) for kind in KINDS)
    ]


def has_something_to_try(page: Path) -> bool:
    return any(is_run(block) or block.has("printed by") or block.has("runs") for block in blocks(page))


def lacks(page: Path) -> list[str]:
    """The packages that the page needs and that are not here."""
    needed = re.search(r"^<!-- needs (.*) -->$", page.read_text(), re.M)
    specs = {package: find_spec(package) for package in needed[1].split()} if needed else {}
    return [package for package, spec in specs.items() if spec is None or spec.origin is None]


def starts_ranks(page: Path) -> bool:
    """Whether the page starts a job with the launcher."""
    shown = [f"{block.note} {block.text if block.has('runs') else ''}" for block in blocks(page)]
    return any("distcompile-run" in text for text in shown)


def try_page(page: Path, folder: Path, *, update: bool = False) -> None:
    """Everything that the page shows, in `folder`. update: the page gets the output that there is."""
    found = blocks(page)
    (folder / "examples").symlink_to(ROOT / "examples")
    for block in found:
        if block.has("file"):
            path = folder / block.argument("file")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
    printed = iter(run_python(page, [block for block in found if is_run(block)], folder))
    last = ""
    for block in found:
        if is_run(block):
            last = next(printed)
        elif block.has("output"):
            compare(page, block, last, update)
        elif block.has("printed by"):
            compare(page, block, by_rank(run_command(block.argument("printed by"), folder)), update)
        elif block.has("runs"):
            for command in block.text.splitlines():
                run_command(command.partition("  #")[0], folder)


def run_python(page: Path, found: list[Block], folder: Path) -> list[str]:
    """What each block printed."""
    if not found:
        return []
    (folder / "blocks.json").write_text(json.dumps([str(page), [(block.line, block.text) for block in found]]))
    return run([sys.executable, "-c", DRIVER, "blocks.json"], folder).split(MARK)[: len(found)]


def run_command(command: str, folder: Path) -> str:
    return run(["bash", "-c", command], folder)


def run(command: list[str], folder: Path) -> str:
    """Stdout of a command that ends well. `distcompile-run` and `python` are this environment's."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"
    return done.stdout


def by_rank(text: str) -> str:
    """The launcher writes `[rank] line` in the order of arrival."""

    def rank(line: str) -> int:
        found = re.match(r"\[(\d+)\]", line)
        return int(found[1]) if found else -1

    return "".join(f"{line}\n" for line in sorted(text.splitlines(), key=rank))


def compare(page: Path, block: Block, printed: str, update: bool) -> None:
    """The block's text must be what was printed; with `update` it becomes that, unless it has `...` in it."""
    if update and "..." not in block.text:
        fence = f"<!-- {block.note} -->\n```{block.language}\n"
        page.write_text(page.read_text().replace(f"{fence}{block.text}```", f"{fence}{printed}```", 1))
    elif not agrees(block.text, printed):
        raise AssertionError(
            f"{page.relative_to(ROOT)}:{block.line} says\n{block.text}\nbut it is\n{printed}\n"
            "If that is meant: pytest tests/docs --update-golden, and read the diff"
        )


def agrees(said: str, printed: str) -> bool:
    """`...` is any text; numbers with a decimal point are equal to 5 %, as the last bits depend on the CPU."""
    pieces = [NUMBER.sub("\x00", piece) for piece in said.rstrip().split("...")]
    pattern = ".*?".join(re.escape(piece) for piece in pieces).replace("\x00", f"({NUMBER.pattern})")
    found = re.fullmatch(pattern, printed.rstrip(), re.S)
    if not found:
        return False
    expected = [float(number) for number in NUMBER.findall(said)]
    return all(abs(float(a) - b) <= max(0.05 * abs(b), 2e-3) for a, b in zip(found.groups(), expected, strict=True))
