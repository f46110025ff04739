"""All that is to be seen on GPUs, in one run: tests that need a device, then this folder's benchmarks.

    python benchmarks/gpu/everything.py OUT [--only 'gpt2*' ddp] [--seconds 560] [--list]

In: a machine with one CUDA device or more, PyTorch for the peer's side, pytest. Out: OUT/NAME.txt for each entry (its
output, and its exit code and seconds last), OUT/summary.txt (these, and the last line that it wrote). What needs two
devices runs first, one at a time; then each device takes the next of the others, so that no two share one. Nothing
begins that cannot end within --seconds, and what outlasts its own limit is ended: both are said in the summary. Exit
code 1 if an entry failed, or was left out.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTEST = ("-m", "pytest", "-q", "-n0", "-s", "--timeout=300")
GPT2, RESNET = ("benchmarks/gpu/gpt2.py",), ("benchmarks/gpu/resnet.py",)


@dataclass(frozen=True)
class Entry:
    """arguments: of Python, in the project's root. seconds: at most. devices: that it needs."""

    name: str
    arguments: tuple[str, ...]
    seconds: float
    devices: int = 1
    environment: tuple[tuple[str, str], ...] = ()


SIDE = "benchmarks/gpu/gpt2_side.py"


def _of_ranks(name: str, *arguments: str, **environment: str) -> Entry:
    """The two ranks' step alone, as those variables have it, and its buckets, or what `arguments` ask for."""
    command = ("-m", "launch", "-n", "2", SIDE, *(arguments or ("--report",)))
    return Entry(f"gpt2_ranks_{name}", command, 60, 2, tuple(environment.items()))


ENTRIES = (
    Entry("ddp", (*PYTEST, "tests/distributed/gpus/test_ddp_gpus.py"), 400, 2),
    Entry("nccl", (*PYTEST, "tests/distributed/gpus/test_nccl_gpus.py"), 200, 2),
    Entry("gpt2_ranks", (*GPT2, "--ranks", "2", "--both", "--rounds", "2"), 240, 2),
    _of_ranks("report"),
    _of_ranks("without_ddp", "--no-ddp"),
    _of_ranks("by_nccl", DISTCOMPILE_COPY_ENGINES="0"),
    _of_ranks("high_priority", TORCH_NCCL_HIGH_PRIORITY="1"),
    _of_ranks("profile", "--profile"),
    _of_ranks("mute", "--profile", "--mute"),
    Entry("copies", (*PYTEST, "tests/distributed/gpus/test_copies_gpus.py"), 90, 2),
    Entry("compiled_modes", (*PYTEST, "tests/compiler_core/codegen/on_cuda/test_on_a_device.py"), 240),
    Entry("offload_bits", (*PYTEST, "tests/compiler_core/codegen/on_cuda/test_offload_on_a_device.py"), 120),
    Entry("conformance", (*PYTEST, "tests/conformance/test_conformance_gpu.py"), 300),
    Entry("conformance_eager", (*PYTEST, "tests/conformance/test_conformance_gpu_eager.py"), 300),
    Entry("gpt2", (*GPT2, "--rounds", "3"), 200),
    Entry("gpt2_profile", (SIDE, "--profile"), 60),
    Entry("losses", ("benchmarks/gpu/losses.py",), 200),
    Entry("gpt2_graphs", (*GPT2, "--rounds", "2", "--modes", "graphs"), 150),
    Entry("gpt2_eager", (*GPT2, "--rounds", "2", "--modes", "eager"), 100),
    Entry("resnet", (*RESNET, "--rounds", "2", "--modes", "compile,graphs"), 300),
    Entry("offload", ("benchmarks/gpu/offload.py", "--parts", "0,0.5", "--rounds", "1"), 240),
    Entry("kernels", ("benchmarks/gpu/kernels.py", "--each"), 150),
    Entry("attention", ("benchmarks/gpu/attention.py", "--each"), 150),
    Entry("eager", ("benchmarks/eager.py", "--device", "cuda", "--rounds", "3", "--peer-python", sys.executable), 150),
)


class Run:
    """What has been done so far, by lanes that run side by side."""

    def __init__(self, out: Path, end_s: float) -> None:
        self.out, self.end_s = out, end_s
        self.lock = threading.Lock()
        self.lines: list[str] = []
        self.ended_well = True

    def take(self, entry: Entry, devices: str) -> None:
        """Run it on those devices, unless it could not end in time."""
        limit_s = entry.seconds
        if time.monotonic() + limit_s > self.end_s:
            self.say(f"{entry.name:28} left out: up to {entry.seconds:.0f} s, more than there are", well=False)
            return
        began_s = time.monotonic()
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": devices, "PYTHONPATH": paths, **dict(entry.environment)}
        told = self.out / f"{entry.name}.txt"
        with open(told, "w") as output:
            process = subprocess.Popen(
                [sys.executable, *entry.arguments], cwd=ROOT, env=environment, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                end = f"exit code {process.wait(limit_s)}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                end = f"ended after {limit_s:.0f} s: exit code {process.wait()}"
            last = "".join(told.read_text().splitlines()[-1:])
            end += f", {time.monotonic() - began_s:.0f} s"
            output.write(f"\n{end}\n")
        self.say(f"{entry.name:28} {end}: {last[:100]}", well=process.returncode == 0)

    def say(self, line: str, *, well: bool) -> None:
        """A line of the summary, at once."""
        with self.lock:
            self.lines.append(line)
            self.ended_well &= well
            (self.out / "summary.txt").write_text("\n".join([*self.lines, ""]))
            print(line, flush=True)

    def lane(self, entries: list[Entry], device: str) -> None:
        """Take the next of `entries`, until there is none."""
        while True:
            with self.lock:
                if not entries:
                    return
                entry = entries.pop(0)
            self.take(entry, device)


def visible_devices() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return told.split(",") if told else [str(k) for k, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", default=["*"], help="entries, by patterns of the shell")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all of it")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    options = parser.parse_args()
    chosen = [e for e in ENTRIES if any(fnmatch.fnmatch(e.name, pattern) for pattern in options.only)]
    if options.list:
        for entry in chosen:
            print(f"{entry.name:28} {entry.devices} device(s), at most {entry.seconds:.0f} s")
        return 0
    devices = visible_devices()
    options.out.mkdir(parents=True, exist_ok=True)
    run = Run(options.out, time.monotonic() + options.seconds)
    for entry in (e for e in chosen if e.devices > 1):
        if len(devices) < entry.devices:
            run.say(f"{entry.name:28} left out: {entry.devices} devices are needed", well=False)
        else:
            run.take(entry, ",".join(devices[: entry.devices]))
    alone = [e for e in chosen if e.devices == 1]
    lanes = [threading.Thread(target=run.lane, args=(alone, device)) for device in devices]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    return 0 if run.ended_well and devices else 1


if __name__ == "__main__":
    sys.exit(main())
