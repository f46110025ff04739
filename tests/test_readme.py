"""README tells the truth: its stages are what the compiler prints, its example runs and prints what it says.

`pytest tests/test_readme.py --update-golden` rewrites the generated blocks; CI never does.
A block stands between `<!-- begin NAME -->` and `<!-- end NAME -->`, as one fenced code block.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from readme_stages import stages

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
LANGUAGES = {"cpp": "cpp", "triton": "python", "example": "python"}


def block(name: str) -> str:
    """The text inside README's block `name`."""
    found = re.search(rf"<!-- begin {name} -->\n```\w*\n(.*?)```\n<!-- end {name} -->", README.read_text(), re.S)
    assert found, f"README has no block {name!r}"
    return found[1]


@pytest.fixture
def readme_block(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """readme_block(name, text): README's block must be `text`; with --update-golden, becomes it."""

    def compare(name: str, text: str) -> None:
        if request.config.getoption("--update-golden"):
            fenced = f"<!-- begin {name} -->\n```{LANGUAGES.get(name, 'text')}\n{text}```\n<!-- end {name} -->"
            whole = re.sub(
                rf"<!-- begin {name} -->.*?<!-- end {name} -->", lambda _: fenced, README.read_text(), flags=re.S
            )
            README.write_text(whole)
        assert block(name) == text, f"README's block {name!r} is out of date: --update-golden, and read the diff"

    return compare


def run(*command: str, timeout_s: float = 240) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_stage_is_what_the_compiler_prints(readme_block: Callable[[str, str], None], tmp_path: Path) -> None:
    pytest.importorskip("triton")
    for name, text in stages(tmp_path).items():
        readme_block(name, text)


def test_the_example_is_the_file(readme_block: Callable[[str, str], None]) -> None:
    source = (ROOT / "examples" / "quickstart.py").read_text()
    readme_block("example", source[source.index("import distcompile") :])


def test_the_example_prints_what_readme_says(request: pytest.FixtureRequest, readme_block) -> None:
    """The same lines; numbers with a decimal point to 5 %, since the last bits depend on the CPU."""
    lines = sorted(run(sys.executable, "-m", "launch", "-n", "2", "examples/quickstart.py").splitlines(), key=_order)
    text = "".join(f"{line}\n" for line in lines)
    if request.config.getoption("--update-golden"):
        readme_block("output", text)
    said = block("output")
    decimals = re.compile(r"\d+\.\d+")
    assert decimals.sub("#", text) == decimals.sub("#", said)
    found, expected = map(decimals.findall, (text, said))
    assert [float(v) for v in found] == pytest.approx([float(v) for v in expected], rel=0.05, abs=2e-3)


def test_the_worked_example_of_capture_prints_what_readme_says(
    readme_block: Callable[[str, str], None], tmp_path: Path
) -> None:
    script = tmp_path / "explained.py"
    script.write_text(block("explain_example"))
    readme_block("explain_output", run(sys.executable, str(script)))


def _order(line: str) -> bool:
    """Output of all ranks, rank 0's first."""
    return not line.startswith("[0]")


def test_the_two_commands_stand_in_readme() -> None:
    text = README.read_text()
    assert 'pip install ".[mpich]" && distcompile-run -n 2 -m distcompile.demo' in text
    assert 'pip install -e ".[test]" && pytest' in text


def test_the_map_names_what_is_there() -> None:
    """Every path in README's map exists, and every folder of the four packages is in it."""
    text = README.read_text()
    tree = text[text.index("<!-- begin map -->") : text.index("<!-- end map -->")]
    named = set(re.findall(r"`([\w./]+)`", tree))
    assert named, "the map names nothing"
    missing = [name for name in named if name.count("/") and not any(ROOT.glob(f"**/{name.rstrip(chr(47))}"))]
    assert not missing
    packages = ("compiler_core", "distcompile", "collectives", "launch")
    folders = [f for p in packages for f in (ROOT / p).iterdir() if f.is_dir() and (f / "__init__.py").exists()]
    assert not [f.name for f in folders if f"{f.parent.name}/{f.name}/" not in named]


def test_python_snippets_run() -> None:
    """Each ```python block of README that is not generated runs on its own."""
    text = re.sub(r"<!-- begin (\w+) -->.*?<!-- end \1 -->", "", README.read_text(), flags=re.S)
    snippets = re.findall(r"```python\n(.*?)```", text, re.S)
    assert snippets
    for snippet in snippets:
        run(sys.executable, "-c", snippet)
