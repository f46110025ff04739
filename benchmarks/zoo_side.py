"""One side of zoo.py: one model's training step, timed on demand; the same file under torch and under --as-torch.

    zoo_side.py ROW WEIGHTS --mode eager|compiled --device cpu|cuda

In: WEIGHTS, a file that torch's side writes and ours reads; then a line of JSON a question: {"do": "start"},
"sample", "memory", "kernels". Out: a line of JSON each; the first says who this side is. What goes wrong is an answer.
A step is forward, backward and AdamW; on CUDA under bf16 autocast, channels last where the model convolves. What draws
random numbers in a step (dropout, stochastic depth) is off, so that losses can be compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from framework import NAME, F, identity, torch
from memory import give_back, resident_mb
from zoo_rows import ROWS

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "as_torch" / "library_programs"))
from library_common import provide_torchvisions_operators
from vision_models import without_chance

SAMPLE_S, WARM_UP, LEARNING_RATE = 0.2, 3, 1e-4
Answer = dict[str, Any]


def loss_of(result: Any, classes: Any) -> Any:
    """What the model says, or its scores' cross entropy."""
    if classes is None or getattr(result, "loss", None) is not None:
        return result.loss
    scores = result["out"] if isinstance(result, dict) else result
    return F.cross_entropy(scores.float(), classes)


class Training:
    """A row's model, on a device, and its step."""

    def __init__(self, given: argparse.Namespace) -> None:
        row, self.cuda, self.compiled = ROWS[given.row], given.device == "cuda", given.mode == "compiled"
        provide_torchvisions_operators()
        torch.manual_seed(0)
        model = without_chance(row.make(self.cuda))
        for module in model.modules():
            if isinstance(getattr(module, "drop_rate", None), float):  # timm's, of a function
                module.drop_rate = 0.0
        weights = Path(given.weights)
        if NAME == "torch":
            torch.save(model.state_dict(), weights)
        elif weights.exists():
            model.load_state_dict(torch.load(weights))
        last = {"memory_format": torch.channels_last} if row.channels_last and self.cuda else {}
        self.model = model.to(given.device).to(**last)
        inputs, classes = row.batch(self.cuda, np.random.default_rng(zlib.crc32(given.row.encode())))
        self._inputs = {name: self._placed(value, last) for name, value in inputs.items()}
        self._classes = self._placed(classes, {})
        self._call = torch.compile(self.model) if self.compiled else self.model
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        self._count = 1

    def _placed(self, value: Any, last: dict[str, Any]) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        placed = torch.from_numpy(value).to("cuda" if self.cuda else "cpu")
        return placed.to(**last) if last and value.ndim == 4 else placed

    def step(self) -> Any:
        with torch.autocast("cuda", torch.bfloat16, enabled=self.cuda):
            loss = loss_of(self._call(**self._inputs), self._classes)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def done(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def timed(self, count: int) -> tuple[float, float]:
        """Seconds and CPU seconds of `count` steps."""
        self.done()
        begun, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            self.step()
        self.done()
        return time.perf_counter() - begun, time.process_time() - used

    # ---- answers

    def start(self) -> Answer:
        begun = time.perf_counter()
        losses = [self.step().item()]
        first_s = time.perf_counter() - begun
        losses += [self.step().item() for _ in range(2)]
        self.timed(WARM_UP)
        self._count = max(1, round(SAMPLE_S / self.timed(1)[0]))
        numel = sum(p.numel() for p in self.model.parameters())
        return {"first_s": first_s, "losses": losses, "parameters": numel}

    def sample(self) -> Answer:
        """Seconds a step, of some."""
        seconds, used = self.timed(self._count)
        return {"seconds": seconds / self._count, "cpu": used / self._count}

    def memory(self) -> Answer:
        """The peak of steps: on a device, all allocated; on a CPU, resident beyond what is resident between steps."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
            self.timed(2)
            return {"mb": torch.cuda.max_memory_allocated() / 2**20}
        give_back()
        floor = resident_mb("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        self.timed(WARM_UP)
        return {"mb": max(resident_mb("VmHWM") - floor, 0.0)}

    def kernels(self) -> Answer:
        """The three of ours that cost most: name, milliseconds a step, and the least it must take (0: not known)."""
        steps = 3
        if self.compiled:
            from distcompile.debug import profiling

            with profiling() as profile:
                self.timed(steps)
            copied, multiplied = profile.limits or (0.0, product_rate())
            limits = [max(row.nbytes / (row.copy_rate or copied), row.flops / multiplied) for row in profile.rows]
            names = [f"{row.label} {row.note}".split("  ")[0] for row in profile.rows]  # without the line of its source
            costs = list(zip(names, (row.seconds for row in profile.rows), limits))
        else:
            with torch.profiler.profile() as watched:
                self.timed(steps)
            last = "device" if self.cuda else "cpu"
            costs = [(e.key, getattr(e, f"self_{last}_time_total") / 1e6, 0.0) for e in watched.key_averages()]
        longest = sorted(costs, key=lambda cost: -cost[1])[:3]
        return {"kernels": [(name[:60], took / steps * 1e3, least / steps * 1e3) for name, took, least in longest]}


@cache
def product_rate() -> float:
    """Operations a second of a product of two matrices of bfloat16 on the device."""
    matrix, times = torch.randn(8192, 8192, device="cuda").to(torch.bfloat16), []
    for _ in range(5):
        begun = time.perf_counter()
        matrix @ matrix
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return 2 * len(matrix) ** 3 / min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("weights")
    parser.add_argument("--mode", choices=("eager", "compiled"), required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    given = parser.parse_args()
    print(json.dumps(identity()), flush=True)
    training: Training | None = None
    for question in map(json.loads, sys.stdin):
        try:
            training = training or Training(given)
            answer = getattr(training, question["do"])()
        except Exception as error:  # noqa: BLE001  reported, in the table
            text = " ".join(str(error).split())
            answer = {"error": f"{type(error).__name__}: {text[:300]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
