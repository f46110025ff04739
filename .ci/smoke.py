"""A small compiled training step, on one rank or several: does an installation work on this Python?

Out: one line from rank 0, or an exception, and so a non-zero exit, if the compiled gradient is not the eager one, or if
the wheel that is installed is not whole: its version, and that its packages are typed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import platform

import distcompile as torch
from compiler_core.steps import compile_times
from distcompile import nn
from distcompile.nn.parallel import DistributedDataParallel
from distcompile.surface.torch_version import OWN

PACKAGES = ("distcompile", "compiler_core", "collectives", "launch")


def gradient(model: nn.Module, x: torch.Tensor) -> list[float]:
    model.zero_grad()
    model(x).square().mean().backward()
    return [value for p in model.parameters() for value in p.grad.flatten().tolist()]


def check_wheel() -> None:
    found = importlib.metadata.version("distcompile")
    if found != OWN:
        raise AssertionError(f"the wheel says version {found}, the package {OWN}")
    untyped = [name for name in PACKAGES if not importlib.resources.files(name).joinpath("py.typed").is_file()]
    if untyped:
        raise AssertionError(f"no py.typed in {untyped}")


def main() -> None:
    check_wheel()
    torch.distributed.init_process_group()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    x = torch.randn(5, 8)
    eager = gradient(model, x)
    compiled = gradient(torch.compile(model, fullgraph=True), x)
    if not any(time.step == "backend" for time in compile_times()):
        raise AssertionError("nothing was compiled")
    worst = max(abs(a - b) for a, b in zip(eager, compiled))
    if not worst < 1e-5:
        raise AssertionError(f"compiled and eager gradients differ by {worst}")
    if torch.distributed.get_rank() == 0:
        print(f"Python {platform.python_version()}: compiled equals eager to {worst:.1e}", flush=True)


if __name__ == "__main__":
    main()
