"""Models compiled ahead of time: from the start of a process to its first result, and a call. One JSON line a model.

    python package.py [MODEL...] [--python TORCHS_INTERPRETER] [--repeats N]          models: mlp, resnet, gpt

Ours is made and run by distcompile (`aot_compile`, `load_package`), torch's by torch (`aoti_compile_and_package`,
`aoti_load_package`), of one source, in processes of their own, in turn. `start_s`: whole processes that load package
and input and write the result, least and median; `call_ms`: CPU time of a call, the median of many in one process. Both
sides must give one result, of parameters that a formula makes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
MODELS = ("mlp", "resnet", "gpt")
SIDES = ("distcompile", "torch")
CALLS = 50
TIMEOUT_S = 600

_LOAD = """
told = np.load(sys.argv[2])
args = [told[name] for name in told]
"""
RUN = {
    "distcompile": f"""
import sys
import numpy as np
from distcompile.package import load_package
package = load_package(sys.argv[1]){_LOAD}
def call(): return package(*args)
np.save(sys.argv[3], call())
""",
    "torch": f"""
import sys
import numpy as np, torch
package = torch._inductor.aoti_load_package(sys.argv[1]){_LOAD}
args = [torch.from_numpy(array) for array in args]
def call(): return package(*args)
np.save(sys.argv[3], call().detach().numpy())
""",
}
TIMES = f"""
import time
def spent():
    begun = time.process_time()
    call()
    return time.process_time() - begun
for _ in range(10): call()
print(1e3 * sorted(spent() for _ in range({CALLS}))[{CALLS} // 2])
"""


def make(name: str, folder: Path) -> None:
    """Run by a side: the package, and its inputs."""
    from framework import torch

    model, args = example(name)
    numbers = torch.arange(4096, dtype=torch.float32).cos() * 0.05
    with torch.no_grad():
        for parameter in model.parameters():
            count = parameter.numel()
            parameter.copy_(numbers.repeat(count // 4096 + 1)[:count].reshape(parameter.shape))
        program = torch.export.export(model.eval(), args)
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    np.savez(folder / "inputs.npz", **{f"arg{k}": arg.numpy() for k, arg in enumerate(args)})


def example(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model of models.py, which gives its loss, and its arguments."""
    from framework import torch
    from models import GPT, MLP
    from resnet import resnet18

    numbers = torch.arange(3 * 64 * 64, dtype=torch.float32).sin()
    if name == "mlp":
        return MLP(), (numbers[: 4 * 784].reshape(4, 784), torch.arange(4))
    if name == "resnet":
        return resnet18(), (numbers[: 3 * 32 * 32].reshape(1, 3, 32, 32), torch.arange(1))
    tokens = torch.arange(64).reshape(1, 64)
    return GPT(4, 256, 4, 64, 65), (tokens, tokens)


def measure(name: str, pythons: dict[str, str], repeats: int) -> dict[str, object]:
    """Both sides, interleaved."""
    told: dict[str, object] = {"model": name}
    with tempfile.TemporaryDirectory() as place:
        folders = {side: Path(place, side) for side in SIDES}
        for side, folder in folders.items():
            folder.mkdir()
            _process(side, pythons[side], [__file__, "--make", name, str(folder)])
        starts: dict[str, list[float]] = {side: [] for side in SIDES}
        for _ in range(repeats + 1):
            for side, folder in folders.items():
                begun = time.perf_counter()
                _process(side, pythons[side], ["-c", RUN[side], *_files(folder)])
                starts[side].append(time.perf_counter() - begun)
        results = [np.load(folder / "y.npy") for folder in folders.values()]
        np.testing.assert_allclose(*results, rtol=1e-3, atol=1e-4 * float(np.abs(results[0]).max()))
        for side, folder in folders.items():
            kept = starts[side][1:]  # the first fills the caches of the system
            calls = _process(side, pythons[side], ["-c", RUN[side] + TIMES, *_files(folder)])
            least, median = round(min(kept), 3), round(statistics.median(kept), 3)
            told[side] = {"start_s": [least, median], "call_ms": round(float(calls), 4)}
        told["start_ratio"] = round(statistics.median(starts["torch"][1:]) / statistics.median(starts[SIDES[0]][1:]), 1)
    return told


def _files(folder: Path) -> list[str]:
    return [str(folder / file) for file in ("model.pt2", "inputs.npz", "y.npy")]


def _process(side: str, python: str, words: list[str]) -> str:
    path = os.pathsep.join([str(HERE.parent), str(HERE)] if side == SIDES[0] else [str(HERE)])
    environment = {**os.environ, "BENCH_FRAMEWORK": side, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [python, *words], capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{side}: {done.stderr[-2000:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--make", nargs=2, metavar=("MODEL", "FOLDER"))
    options = parser.parse_args()
    if options.make:
        make(options.make[0], Path(options.make[1]))
        return
    for name in options.models:
        told = measure(name, {"distcompile": sys.executable, "torch": options.python}, options.repeats)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
