"""What is measured on one machine: lists of `Measure`, by name.

In: options of run.py. Out: for each thing measured, its sides (name -> Side) and who is compared with whom.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sides import PYTHON, TIMEOUT_S, Side, ours, peer, script

TWO_THREADS = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}


@dataclass(frozen=True)
class Measure:
    """One thing measured. key: the field of the JSON line that counts.

    compared: side of ours -> the peer's sides; the ratio is taken with the quickest of them.
    """

    title: str
    key: str
    unit: str
    sides: Mapping[str, Side]
    compared: Mapping[str, Sequence[str]]


def launched(*arguments: str) -> Side:
    """Ours on two ranks, bench_ddp.py."""
    launcher = [PYTHON, "-m", "launch", "-n", "2", "--no-prefix", "--timeout", str(TIMEOUT_S - 10)]
    return ours(*launcher, *script("bench_ddp.py", *arguments))


def torchrun(python: str, *arguments: str) -> Side:
    """The peer on two ranks, bench_ddp.py."""
    return peer(python, "-m", "torch.distributed.run", "--nproc-per-node", "2", *script("bench_ddp.py", *arguments))


def ddp_measures(options: argparse.Namespace) -> list[Measure]:
    found = []
    for model in options.models.split(","):
        arguments = [options.bucket_mb, "--repeats", options.repeats]
        sides = {"ours": launched(model, "compile", *arguments)}
        for mode in ("compile", "eager"):
            sides[f"torch {mode} + DDP"] = torchrun(options.peer_python, model, mode, *arguments)
        title = f"{model}: training step, 2 ranks x 1 thread, {options.bucket_mb} MiB buckets"
        found.append(Measure(title, "step_ms", "ms", sides, {"ours": ["torch compile + DDP", "torch eager + DDP"]}))
    return found


def small_measures(options: argparse.Namespace) -> list[Measure]:
    """Steps of a few hundred microseconds, in which only overheads count. The peer takes its default buckets."""
    found = []
    for model, cap_mb in (("normed", "default"), ("narrow", "0.0001")):
        arguments = ["--repeats", "400", "--train", "20", "--warm-up", "40"]
        mine = launched(model, "compile", cap_mb, *arguments)
        theirs = torchrun(options.peer_python, model, "eager", "default", *arguments)
        name = {"normed": "20 x (Linear 64 + BatchNorm)", "narrow": "6 x Linear(64), 12 buckets"}[model]
        sides = {"ours": mine, "torch eager + DDP": theirs}
        compared = {"ours": ["torch eager + DDP"]}
        found.append(Measure(f"{name}: step, 2 ranks", "step_ms", "ms", sides, compared))
        found.append(Measure(f"{name}: step less the same without DDP", "exposed_ms", "ms", sides, compared))
    return found


def single_measures(options: argparse.Namespace) -> list[Measure]:
    found = []
    for model in [*options.models.split(","), "chain10k", "chain10m"]:
        arguments = ["--repeats", options.repeats]
        sides = {"ours": ours(PYTHON, *script("bench_single.py", model, "compile", *arguments))}
        for mode in ("compile", "eager"):
            sides[f"torch {mode}"] = peer(options.peer_python, *script("bench_single.py", model, mode, *arguments))
        title = f"{model}: step, 1 process, 1 thread"
        found.append(Measure(title, "step_ms", "ms", sides, {"ours": ["torch compile", "torch eager"]}))
    return found


def whole_measures(options: argparse.Namespace) -> list[Measure]:
    found = []
    for model in options.models.split(","):
        call = ["--repeats", options.repeats]
        sides = {f"ours {mode}": ours(PYTHON, *script("bench_single.py", model, mode, *call)) for mode in _MODES}
        theirs = script("bench_single.py", model, "whole", *call)
        sides["torch compile of model and optimizer"] = peer(options.peer_python, *theirs)
        compared = {"ours whole": ["torch compile of model and optimizer", "ours compile", "ours eager"]}
        found.append(Measure(f"{model}: whole step, 1 process, 1 thread", "step_ms", "ms", sides, compared))
    return found


_MODES = ("whole", "compile", "eager")


def thread_measures(options: argparse.Namespace) -> list[Measure]:
    """Two threads, on an idle machine and beside one process that computes all the time."""
    found = []
    for title, busy in (("2 threads", "0"), ("2 threads beside a busy process", "1")):
        call = script("bench_single.py", "gpt", "compile", "--repeats", options.repeats, "--beside", busy)
        sides = {
            "ours": ours(PYTHON, *call, **TWO_THREADS),
            "torch compile": peer(options.peer_python, *call, **TWO_THREADS),
        }
        found.append(Measure(f"gpt: step, {title}", "step_ms", "ms", sides, {"ours": ["torch compile"]}))
    return found


def cold_measures(options: argparse.Namespace) -> list[Measure]:
    theirs = ["--framework", "torch", "--python", options.peer_python]
    sides = {
        "ours": ours(PYTHON, *script("cold.py", "gpt")),
        "torch compile": peer(PYTHON, *script("cold.py", "gpt", *theirs)),
    }
    title = "gpt: first training step, whole process, {} cache"
    compared = {"ours": ["torch compile"]}
    return [
        Measure(title.format("empty"), "cold_process_s", "s", sides, compared),
        Measure(title.format("filled"), "warm_process_s", "s", sides, compared),
    ]


def deep_measures(options: argparse.Namespace) -> list[Measure]:
    """CPU time of the first step of deeper and deeper GPTs. Only ours: what counts is how it grows with the layers."""
    return [
        Measure(
            f"gpt of {layers} layers, d=64: first step, CPU time, empty cache", "cold_cpu_s", "s",
            {"ours": ours(PYTHON, *script("cold.py", f"gpt{layers}"))}, {},
        )
        for layers in (12, 48, 96)
    ]  # fmt: skip


def import_measures(options: argparse.Namespace) -> list[Measure]:
    found = []
    for title, use in (("import", []), ("import, first module, its backward", ["--use"])):
        sides = {
            "ours": ours(PYTHON, *script("import_time.py", "distcompile", *use)),
            "torch": peer(PYTHON, *script("import_time.py", "torch", *use), "--python", options.peer_python),
        }
        found.append(Measure(title, "median_s", "s", sides, {"ours": ["torch"]}))
    return found
