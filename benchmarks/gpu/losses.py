"""GPT-2's losses on a GPU from the same weights and tokens, ours beside PyTorch's: whether both train alike.

    python benchmarks/gpu/losses.py [--steps 40] [--layers 12] [--peer-python PYTHON]

Out: a row for each of eager and compiled of either framework, every fourth step and the last; last, how far ours are
from PyTorch's at most, and how far PyTorch's two are from each other, which is what 16-bit floats leave open. Exit code
1 if ours are off by more than TIMES that, and EXCESS.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from sides import OURS, PEER, Side, measure, peer_version  # noqa: E402

MODES = ("eager", "compile")
TIMES, EXCESS = 3.0, 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--peer-python", default=sys.executable)
    given = parser.parse_args()
    version, found = peer_version(given.peer_python), {}
    with tempfile.TemporaryDirectory() as folder:
        weights = str(Path(folder) / "weights.npz")
        for framework, python in ((PEER, given.peer_python), (OURS, sys.executable)):
            for mode in MODES:
                arguments = ["--mode", mode, "--steps", str(given.steps), "--layers", str(given.layers)]
                command = (python, str(HERE / "gpt2_side.py"), *arguments, "--losses", "--weights", weights)
                result = measure(Side(framework, (command,)), version if framework == PEER else "")
                losses = found[framework, mode] = result["losses"]
                shown = [*losses[::4], losses[-1]]
                print(f"{framework:12} {mode:8}", *(f"{loss:7.4f}" for loss in shown), flush=True)
    theirs = [found[PEER, mode] for mode in MODES]
    open_ = max(abs(a - b) for a, b in zip(*theirs))
    off = max(min(abs(x - y) for y in ys) for mode in MODES for x, ys in zip(found[OURS, mode], zip(*theirs)))
    print(f"ours are {off:.4f} from PyTorch's nearer one at most; its two are {open_:.4f} apart")
    return int(off > TIMES * open_ + EXCESS)


if __name__ == "__main__":
    sys.exit(main())
