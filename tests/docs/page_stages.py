"""The text of one small model at every stage of the pipeline, for the page that shows it.

`test_generated_blocks.py` keeps the two equal.

In: nothing. Out: `stages()`: block name -> text, taken from the dump of a real compilation.
"""

from __future__ import annotations

import re
from pathlib import Path

import distcompile
from collectives import Communicator, run_ranks
from compiler_core.codegen.triton.module import print_module
from compiler_core.config import config
from compiler_core.loop_ir.parse import parse_program
from distcompile import nn
from distcompile.ddp import DistributedDataParallel

NAME = "tiny"


class Tiny(nn.Module):
    """The function of docs/howto/read_the_irs.md."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8, bias=False), nn.Linear(8, 2, bias=False)

    def forward(self, x: distcompile.Tensor) -> distcompile.Tensor:
        return self.down(distcompile.tanh(self.up(x)))


def compile_tiny(dump: Path) -> None:
    """One compiled step on two ranks (threads) with its dump; every gradient in a bucket of its own."""

    def step(group: Communicator) -> None:
        model = DistributedDataParallel(Tiny(), bucket_cap_mb=1e-6, process_group=group)
        distcompile.compile(model, fullgraph=True)(distcompile.ones(3, 4)).sum().backward()

    with config.patch(dump_dir=str(dump), cache_dir=dump / "cache", boundary="cut"):  # two segments, to show both
        run_ranks(2, step)


def stages(dump: Path) -> dict[str, str]:
    """Block name -> text, in pipeline order."""
    compile_tiny(dump)
    folder = next(dump.glob("rank*/*"))  # threads share one log, under the rank that came last
    files = {re.sub(r"^\d+_", "", path.stem): path.read_text() for path in sorted(folder.iterdir())}
    programs = {name: text for name, text in files.items() if name.startswith("schedule")}
    wanted = {
        "capture": files["capture"],
        "joint": files["simplify_joint"],
        "forward": files["partition_forward"],
        "segments": "\n".join(files[name].rstrip() for name in sorted(files) if name.startswith("plan_segment")),
        "define": next(text for name, text in files.items() if name.startswith("define") and name.endswith("segment1")),
        "triangle": next(
            text for name, text in files.items() if name.startswith("triangle") and name.endswith("segment1")
        ),
        "loop_ir": next(text for name, text in programs.items() if name.endswith("segment1")),
        "cpp": kernels_of(files["emit_main"]),
        "triton": triton_of(programs),
    }
    return {name: shorten(text) for name, text in wanted.items()}


def shorten(text: str) -> str:
    """Without comments (the user's lines); a graph's inputs on lines of their own. Nothing else changes."""
    text = re.sub(r"  +# [^\n]*", "", text)
    text = re.sub(r"^graph [^\n]*", lambda header: header[0].replace(", %", ",\n      %"), text, flags=re.M)
    return text.strip() + "\n"


def kernels_of(source: str) -> str:
    """The kernels of a C++ unit that belong to the backward; helpers and entry points are left out."""
    functions = re.findall(r"^DC_APART (?:void|int32_t) k_.*?^}\n", source, flags=re.M | re.S)
    return "\n".join(functions[-1:])


def triton_of(programs: dict[str, str]) -> str:
    """The same kernel as Triton."""
    text = next(text for name, text in programs.items() if name.endswith("segment1"))
    kernel = parse_program(text).kernels[0]
    source = print_module([kernel]).source
    return source[source.index("@triton.jit") :]
