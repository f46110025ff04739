"""Which of torch's names published libraries use, and which of them are missing under --as-torch.

    python tests/as_torch/names_used.py [LIBRARY...]

In: import names of installed libraries (all of `LIBRARIES` that are installed, if none is given). Their sources are
read, their tests left out: every dotted name of torch's, by way of the file's imports. A name that torch itself has not
(looked up in a process with torch) is left out too. Out: for each library how many names it uses and how many are
missing; then the missing, most used first, with the number of files and libraries. Names behind `hasattr`, `try` and
CUDA-only branches are counted too.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_LIBRARIES = """
accelerate captum denoising_diffusion_pytorch diffusers e3nn einops einx ema_pytorch gpytorch huggingface_hub ignite
kornia lightning_fabric linear_operator lion_pytorch open_clip open_clip_train opt_einsum_fx peft pyro
pytorch_lightning pytorch_metric_learning rotary_embedding_torch safetensors schedulefree segmentation_models_pytorch
sentence_transformers sklearn skorch timm torch_geometric torchdiffeq torchinfo torchmetrics transformers
vector_quantize_pytorch vit_pytorch x_transformers
"""
LIBRARIES = tuple(_LIBRARIES.split())
NOT_READ = {"tests", "test", "testing", "__pycache__"}
Used = dict[str, dict[str, list[str]]]  # name -> library -> files


class Names(ast.NodeVisitor):
    """The dotted names of torch's in one file: `found`."""

    def __init__(self) -> None:
        self.aliases: dict[str, str] = {}
        self.found: set[str] = set()

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.split(".")[0] == "torch":
                self.found.add(alias.name)
                self.aliases[alias.asname or "torch"] = alias.name if alias.asname else "torch"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module and node.module.split(".")[0] == "torch":
            for alias in node.names:
                if alias.name != "*":
                    self.aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                    self.found.add(f"{node.module}.{alias.name}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in self.aliases:
            self.found.add(".".join([self.aliases[inner.id], *reversed(parts)]))
        else:
            self.generic_visit(node)


def sources(library: str) -> Iterator[Path]:
    """The files of a library that is installed."""
    spec = importlib.util.find_spec(library)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).rglob("*.py")):
            if not NOT_READ & set(path.relative_to(folder).parts):
                yield path


def names_of(path: Path) -> set[str]:
    """Every name, and what stands before its dots, without `torch`. Aliases are the file's: functions import too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(path.read_text(errors="replace"))
    names = Names()
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    for node in imports:
        names.visit(node)
    names.visit(tree)
    parts = [name.split(".") for name in names.found]
    return {".".join(each[:end]) for each in parts for end in range(2, len(each) + 1)}


def used(libraries: list[str]) -> Used:
    found: Used = defaultdict(lambda: defaultdict(list))
    for library in libraries:
        for path in sources(library):
            for name in names_of(path):
                found[name][library].append(path.name)
    return found


def is_there(name: str) -> bool:
    """Whether a program that says `name`, and imports the modules on the way, gets it."""
    value = importlib.import_module("torch")
    parts = name.split(".")[1:]
    for position, part in enumerate(parts, 2):
        try:
            value = getattr(value, part)
        except (
            AttributeError,
            ImportError,
            RuntimeError,
        ):  # RuntimeError: of torch.classes
            try:
                value = importlib.import_module(".".join(name.split(".")[:position]))
            except (ImportError, OSError, TypeError):  # TypeError: below what is no package
                return False
    return True


def look_up() -> None:
    """The process on one side: names from standard input, those that are there to standard output, last line."""
    warnings.simplefilter("ignore")
    print("\n" + json.dumps([name for name in json.load(sys.stdin) if is_there(name)]))


def there(names: list[str], *runner: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, *runner, __file__, "--look-up"], input=json.dumps(names), capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    return set(json.loads(done.stdout.strip().splitlines()[-1]))


def main(libraries: list[str]) -> None:
    found = used(libraries)
    torchs = there(sorted(found))
    missing = torchs - there(sorted(torchs), "-m", "distcompile.as_torch")
    alone = {name for name in missing if not any(name.startswith(other + ".") for other in missing)}
    print(f"{len(torchs)} names, {len(missing)} missing ({len(alone)} without the children of a missing one)")
    for library in libraries:
        its = {name for name in torchs if library in found[name]}
        print(f"{library} {len(its)} {len(its & missing)}")
    for name in sorted(missing, key=lambda name: (-sum(map(len, found[name].values())), name)):
        print(f"{name} {sum(map(len, found[name].values()))} {len(found[name])} {','.join(sorted(found[name]))}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--look-up"]:
        look_up()
    else:
        main(sys.argv[1:] or [name for name in LIBRARIES if importlib.util.find_spec(name)])
