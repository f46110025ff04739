"""Kernels on a GPU: ours and torch.compile's, forward and backward, both as CUDA graphs, in one run.

    python benchmarks/gpu/kernels.py [--rows layer_norm,gelu] [--each] [--tune]

In: a machine with a CUDA device and torch (its allocator, its graph capture and its Triton driver serve both sides).
Out: a table on stdout: ms of both, their ratio, the share of the memory's speed, the largest difference of results.
--each: the time of every launch. --tune: other tiles (codegen/triton/tiles.py), launch by launch.
Method: medians of replays; every replay between two events; inputs are random; results are compared with torch's in
float32 before anything is timed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from kernel_rows import ADAMW_SHAPES, ROWS, Row, adamw_program, programs

from compiler_core import dtype as dt
from compiler_core.codegen.triton.load import load
from compiler_core.codegen.triton.module import Launch, TritonModule, print_module
from compiler_core.codegen.triton.tiles import Tile, candidates
from compiler_core.loop_ir.ir import Kernel, KernelCall, Program

COPY_BYTES_PER_S = 4.3e12  # an H200's copy, reads and writes counted
Memory = dict[str, torch.Tensor]


def torch_dtype(dtype: dt.DType) -> torch.dtype:
    return torch.int8 if dtype is dt.bool_ else getattr(torch, dtype.name)


def milliseconds(run: Callable[[], Any], repeats: int = 30) -> float:
    """The median time of `run` on the device, in ms."""
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def graphed(run: Callable[[], Any]) -> Callable[[], None]:
    """`run` captured as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def speed_share(nbytes: int, ms: float) -> float:
    """`nbytes` in `ms`, as a share of what a copy moves."""
    return nbytes / (ms * 1e-3) / COPY_BYTES_PER_S


class Runner:
    """Runs programs over device memory: what a native launcher does, in Python, for capture."""

    def __init__(self, made: Sequence[Program], tiles: dict[str, Tile] | None = None) -> None:
        kernels = list(dict.fromkeys(kernel for program in made for kernel in program.kernels))
        self.module: TritonModule = print_module(kernels, tiles)
        self.functions = load(self.module, interpret=False)
        self.scratch: Memory = {}
        self.status = torch.zeros(1, dtype=torch.int32, device="cuda")

    def memory(self, program: Program, given: Memory) -> Memory:
        """Of every buffer: what is given, else new."""
        arena = torch.empty(max(program.arena_nbytes, 1), dtype=torch.uint8, device="cuda")
        memory = {}
        for buffer in program.buffers:
            dtype = torch_dtype(buffer.dtype)
            if buffer.name in given:
                memory[buffer.name] = given[buffer.name].reshape(-1)
            elif buffer.kind == "temp":
                memory[buffer.name] = arena[buffer.offset : buffer.offset + buffer.nbytes].view(dtype)
            else:
                memory[buffer.name] = torch.empty(max(buffer.numel, 1), dtype=dtype, device="cuda")
        return memory

    def launches(self, program: Program, memory: Memory) -> list[tuple[str, Callable[[], None]]]:
        found = []
        for step in program.steps:
            assert isinstance(step, KernelCall), f"{step} is no kernel"
            arrays = [memory[slot.buffer][slot.offset :] for slot in step.slots]
            found += [(launch.function, self._bound(launch, arrays)) for launch in self.of(step.kernel)]
        return found

    def of(self, kernel: Kernel) -> Sequence[Launch]:
        return self.module.launches[kernel.name]

    def _bound(self, launch: Launch, arrays: Sequence[torch.Tensor]) -> Callable[[], None]:
        scratch = [
            torch.empty(s.numel * launch.programs, dtype=torch_dtype(s.dtype), device="cuda") for s in launch.scratch
        ]
        arguments = [*arrays, *scratch, *([self.status] if launch.has_status else [])]
        function = self.functions[launch.function]

        def run() -> None:
            function[(launch.programs,)](*arguments, num_warps=launch.warps, enable_fp_fusion=launch.contracts)

        return run


def device_input(shape: tuple[int, ...], dtype: dt.DType, numbers: int, wants_gradient: bool) -> torch.Tensor:
    if dtype is dt.int64:
        return torch.randint(0, numbers, shape, device="cuda")
    return torch.randn(shape, dtype=torch_dtype(dtype), device="cuda").requires_grad_(wants_gradient)


class Ours:
    """Our side of a row."""

    def __init__(self, row: Row, inputs: Sequence[torch.Tensor], tangent: torch.Tensor) -> None:
        self.made = programs(row)
        forward, backward = self.made
        given = {f"x{i}": tensor.detach() for i, tensor in enumerate(inputs)}
        self.given = [given, {}]
        self.runner = Runner(self.made)
        self.memory = [self.runner.memory(forward, given)]
        saved = self.memory[0] | {name: tangent for name in backward.inputs if name.startswith("tangent")}
        self.given[1] = {name: saved[name] for name in backward.inputs}
        self.memory.append(self.runner.memory(backward, self.given[1]))
        self.launches = [
            launch
            for program, memory in zip(self.made, self.memory)
            for launch in self.runner.launches(program, memory)
        ]

    def __call__(self) -> None:
        for _, run in self.launches:
            run()

    def results(self) -> list[torch.Tensor]:
        """The forward's result, then gradients."""
        forward, backward = self.made
        return [self.memory[0][forward.outputs[0]], *(self.memory[1][name] for name in backward.outputs)]


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """|ours - theirs| / |theirs|, in float64."""
    a, b = ours.reshape(-1).double(), theirs.detach().reshape(-1).double()
    return float((a - b).norm() / (b.norm() + 1e-30))


def run_row(row: Row, each: bool, tune: bool) -> None:
    inputs = [device_input(shape, dtype, row.numbers, wanted) for (shape, dtype), wanted in zip(row.inputs, row.wanted)]
    wanted = [tensor for tensor, want in zip(inputs, row.wanted) if want]
    expected = row.theirs(torch, *inputs)
    tangent = torch.randn_like(expected) if expected.ndim else torch.ones_like(expected)
    reference = [expected, *torch.autograd.grad(expected, wanted, tangent)]
    begin = time.time()
    ours = Ours(row, inputs, tangent)
    ours()
    torch.cuda.synchronize()
    first = time.time() - begin
    again = [result.clone() for result in ours.results()]
    differences = [difference(a, b) for a, b in zip(ours.results(), reference)]
    ours()
    same = all(torch.equal(a, b) for a, b in zip(again, ours.results()))
    del again, reference, expected
    our_ms = milliseconds(graphed(ours))
    print(
        f"{row.name:28} ours {our_ms:7.4f} ms {speed_share(row.nbytes, our_ms):5.0%} of the memory's speed"
        f", {len(ours.launches)} launches, differs {max(differences):.1e}, status {int(ours.runner.status[0])}"
        f", {'same bits' if same else 'OTHER BITS AT A SECOND RUN'}, first {first:.1f} s",
        flush=True,
    )
    if each:
        for name, run in ours.launches:
            print(f"    {name:40} {milliseconds(graphed(run), 10):7.4f} ms", flush=True)
    if tune:
        tune_launches(ours)
    del ours
    torch._dynamo.reset()
    compiled = torch.compile(lambda *tensors: row.theirs(torch, *tensors))

    def step() -> None:
        torch.autograd.grad(compiled(*inputs), wanted, tangent)

    for _ in range(3):
        step()
    their_ms = milliseconds(graphed(step))
    ratio = their_ms / our_ms
    print(f"{row.name:28} torch.compile {their_ms:7.4f} ms; ours is {ratio:.2f} times as fast", flush=True)


def tune_launches(ours: Ours) -> None:
    """Every launch with every candidate tile."""
    for program, memory in zip(ours.made, ours.memory):
        for kernel in program.kernels:
            for position, launch in enumerate(ours.runner.of(kernel)):
                tune_launch(program, memory, kernel, position, launch)


def tune_launch(program: Program, memory: Memory, kernel: Kernel, position: int, launch: Launch) -> None:
    times = []
    for tile in candidates(launch.shape):
        runner = Runner([program], {launch.function: tile})
        step = next(s for s in program.steps if isinstance(s, KernelCall) and s.kernel is kernel)
        arrays = [memory[slot.buffer][slot.offset :] for slot in step.slots]
        try:
            run = runner._bound(runner.of(kernel)[position], arrays)
            times.append((milliseconds(graphed(run), 10), tile))
        except Exception as error:  # noqa: BLE001, a tile that does not compile
            print(f"    {launch.function} {tile}: {type(error).__name__} {str(error)[:80]}", flush=True)
    if times and times[0][0] > 0.004:
        best = min(times, key=lambda pair: pair[0])
        shown = ", ".join(f"{t.rows}x{t.lanes}/{t.warps}: {ms:.4f}" for ms, t in times)
        print(f"    {launch.function}: {times[0][0]:.4f} -> {best[0]:.4f} ms  {shown}", flush=True)


def run_adamw() -> None:
    program = adamw_program()
    runner = Runner([program])
    given = {
        buffer.name: torch.rand(buffer.numel, device="cuda") for buffer in program.buffers if buffer.kind == "input"
    }
    launches = runner.launches(program, runner.memory(program, given))

    def step() -> None:
        for _, run in launches:
            run()

    our_ms = milliseconds(graphed(step), 10)
    parameters = [torch.randn(shape, device="cuda", requires_grad=True) for shape in ADAMW_SHAPES]
    numel = sum(p.numel() for p in parameters)
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(parameters, fused=True)
    their_ms = milliseconds(optimizer.step, 10)
    share = speed_share(28 * numel, our_ms)
    print(
        f"{'AdamW 124 M':28} ours {our_ms:7.4f} ms {share:5.0%} of the memory's speed, {len(launches)} launches; torch "
        f"fused {their_ms:7.4f} ms; ours is {their_ms / our_ms:.2f} times as fast",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="parts of row names, separated by commas; adamw is one")
    parser.add_argument("--each", action="store_true", help="times of single launches")
    parser.add_argument("--tune", action="store_true", help="times of other tiles")
    options = parser.parse_args()
    wanted = [name for name in options.rows.split(",") if name]
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    failed = 0
    for row in ROWS:
        if wanted and not any(name in row.name for name in wanted):
            continue
        try:
            run_row(row, options.each, options.tune)
        except Exception as error:  # noqa: BLE001, one row's failure must not hide the others
            failed += 1
            print(f"{row.name:28} FAILED {type(error).__name__}: {str(error)[:600]}", flush=True)
        torch.cuda.empty_cache()
    if not wanted or "adamw" in wanted:
        run_adamw()
    return failed


if __name__ == "__main__":
    sys.exit(main())
