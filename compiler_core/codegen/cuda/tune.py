"""Measured tiles: how each generated kernel of a program is cut, chosen by trying (mode "max-autotune").

In: kernels, and the device that they will run on. Out: `choose_tiles`: function name -> the tile that was fastest
there, where it is not the rule's. The candidates are tiles.py's, the rule's first; each becomes a cubin, and runs on
scratch memory of the kernel's sizes: normal numbers, and zeros for integers, so that an index is always in bounds.

    kept        one choice a kernel in the artefact cache, by its text, sizes, device and Triton's version: what was
                measured once is found by every later program, and by the other ranks of a host, whoever measured first
    left alone  launches of less than LEAST bytes, and loops whose length the data decide: zeros tell nothing of them
A tile changes no element's formula; sums over rows may be added in another order, so in the last bits they may differ
from what the rule's tile gives. Functions written by hand have their own tables.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from compiler_core import cuda, log
from compiler_core.codegen.cuda.cubins import EXTRA, SOURCE, Cubin, Wanted, compile_some
from compiler_core.codegen.cuda.plan import scratch_of
from compiler_core.codegen.cuda.workers import Workers
from compiler_core.codegen.triton.module import Launch, TritonModule, print_module
from compiler_core.codegen.triton.tiles import Tile, candidates
from compiler_core.errors import DeviceError, LoweringError
from compiler_core.loop_ir.ir import Kernel, Loop, walk
from compiler_core.loop_ir.print import print_kernel
from compiler_core.records import dataclass
from compiler_core.runtime.cache import Manifest, find, generator_fingerprint, load_or_build, make_key
from compiler_core.runtime.cuda import context, driver, measure
from compiler_core.runtime.cuda.entry import CudaFunction

LEAST = 1 << 20  # bytes that a launch reads and writes, below which it is not worth it
MOST = 8  # candidates
GAIN = 0.97  # of the rule's time, that another must stay below


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate: the kernel, its launch, and its cubin, None where Triton refused it."""

    kernel: Kernel
    launch: Launch
    folder: Path
    cubin: Cubin | None


def choose_tiles(
    kernels: Sequence[Kernel],
    aligned: Mapping[str, tuple[int, ...]],
    capability: int,
    folder: Path,
    workers: Workers,
    number: int | None,
    triton: str,
    say: Callable[[str], object],
) -> dict[str, Tile]:
    """The tiles that differ from the rule's. aligned: as plan.py has it. number: of the device, None: the current one.

    folder: of what is compiled to be tried. triton: its version. say: is told each choice, and why.
    """
    if cuda.why_not():
        log.warn_once("tuning tiles", f"tiles are the rule's, none was measured: {cuda.why_not()}")
        return {}
    chosen: dict[str, Tile] = {}
    with context.on(number):
        properties = context.cupy().cuda.runtime.getDeviceProperties(cuda.current())
        known = f"{properties['name'].decode()}, sm_{capability}, Triton {triton}"
        base = print_module(kernels)
        wanted = list(_worth(kernels, base))
        keys = {launch.function: _key(kernel, launch, known) for launch, kernel in wanted}
        missing = [(launch, kernel) for launch, kernel in wanted if find(keys[launch.function]) is None]
        trials = _compile(missing, aligned, capability, folder, workers)
        for launch, _ in wanted:
            function = launch.function
            made = partial(_measured, trials.get(function, []), function)
            kept = load_or_build(keys[function], made).manifest
            say(_told(function, kept))
            best = kept["tile"]
            if best and Tile(*best) != launch.tile:
                chosen[function] = Tile(*best)
    return chosen


def _worth(kernels: Sequence[Kernel], module: TritonModule) -> Iterator[tuple[Launch, Kernel]]:
    """The launches to be tuned, and whose they are."""
    for kernel in kernels:
        nbytes = sum(int(p.numel) * p.dtype.itemsize for p in kernel.params)
        by_data = any(isinstance(stmt, Loop) and stmt.span is not None for stmt in walk(kernel.body))
        if nbytes >= LEAST and not by_data:
            yield from ((launch, kernel) for launch in module.launches[kernel.name] if launch.shape is not None)


def _key(kernel: Kernel, launch: Launch, known: str) -> str:
    section = launch.function.removeprefix(kernel.name)
    text = print_kernel(kernel).replace(kernel.name, "kernel", 1)
    return make_key({"tiles of": text, "section": section, "place": known, "generator": generator_fingerprint()})


# -- trying


def _compile(
    launches: Sequence[tuple[Launch, Kernel]],
    aligned: Mapping[str, tuple[int, ...]],
    capability: int,
    folder: Path,
    workers: Workers,
) -> dict[str, list[Trial]]:
    """All candidates of all launches, side by side; by function name, the rule's first."""
    kernels = list(dict.fromkeys(kernel for _, kernel in launches))
    choices = {launch.function: _candidates(launch) for launch, _ in launches}
    owners = {launch.function: kernel for launch, kernel in launches}
    modules: list[tuple[Path, TritonModule]] = []
    for number in range(max(map(len, choices.values()), default=0)):
        tiles = {function: tried[number] for function, tried in choices.items() if number < len(tried)}
        place = folder / f"tiles{number}"
        place.mkdir()
        try:
            modules.append((place, print_module(kernels, tiles)))
        except LoweringError as error:
            log.emit("tuning", f"candidates {number} cannot be printed: {error}")
            continue
        (place / SOURCE).write_text(modules[-1][1].source)
    wanted = [
        (place, Wanted(launch, aligned[launch.function]))
        for place, module in modules
        for made in module.launches.values()
        for launch in made
        if launch.function in choices and launch.tile in choices[launch.function]
    ]
    found: dict[str, dict[Tile | None, Trial]] = {}
    for (place, one), cubin in zip(wanted, compile_some(wanted, capability, workers), strict=True):
        function = one.launch.function
        trial = Trial(owners[function], one.launch, place, cubin)
        found.setdefault(function, {}).setdefault(one.launch.tile, trial)
    return {function: [*trials.values()] for function, trials in found.items()}


def _candidates(launch: Launch) -> list[Tile]:
    assert launch.shape is not None
    return list(dict.fromkeys(candidates(launch.shape)))[:MOST]


def _measured(trials: Sequence[Trial], function: str, folder: Path) -> Manifest:
    """The fastest tile, as numbers, and all times; no tile where nothing could be measured. folder: left empty."""
    times_us: dict[Tile, float] = {}
    for trial in trials:
        try:
            if trial.cubin is not None and trial.launch.tile is not None:
                times_us[trial.launch.tile] = _time_us(trial, trial.cubin)
        except (MemoryError, DeviceError) as error:  # registers or shared memory that there are not
            log.emit("tuning", f"{function} as {trial.launch.tile}: {error}")
    if not times_us:
        return {"tile": [], "times": []}
    first, best = next(iter(times_us)), min(times_us, key=times_us.__getitem__)
    best = best if times_us[best] < GAIN * times_us[first] else first
    return {"tile": list(astuple(best)), "times": [[list(astuple(tile)), us] for tile, us in times_us.items()]}


def _told(function: str, kept: Manifest) -> str:
    if not kept["tile"]:
        return f"{function}: the rule's tile, nothing could be measured"
    times = {Tile(*tile): us for tile, us in kept["times"]}
    best, first = Tile(*kept["tile"]), next(iter(times))
    return f"{function}: {best}, {times[best]:.1f} us; by rule {first}, {times[first]:.1f} us"


def _time_us(trial: Trial, cubin: Cubin) -> float:
    kernel, launch, xp = trial.kernel, trial.launch, context.cupy()
    arrays = [_memory(int(p.numel), p.dtype) for p in kernel.params]
    offsets, nbytes = scratch_of(launch)
    scratch = xp.zeros(nbytes + 4, np.uint8)
    base = scratch.data.ptr
    addresses = [array.data.ptr for array in arrays] + [base + offset for offset in offsets]
    addresses += [base + nbytes] if launch.has_status else []
    words = (ctypes.c_uint64 * (len(addresses) + EXTRA))(*addresses)
    step = ctypes.sizeof(ctypes.c_uint64)
    places = (ctypes.c_void_p * len(words))(*(ctypes.addressof(words) + k * step for k in range(len(words))))
    where = f"trying {launch.function} as {launch.tile}"
    code = (trial.folder / cubin.file).read_bytes()
    with context.loaded_function(CudaFunction(cubin.file, cubin.name, cubin.shared, cubin.threads), code, where) as at:
        stream = ctypes.c_void_p(xp.cuda.get_current_stream().ptr)
        sizes = (launch.programs, 1, 1, cubin.threads, 1, 1, cubin.shared)
        run = partial(driver.call, "cuLaunchKernel", ctypes.c_void_p(at), *sizes, stream, places, None, where=where)
        return measure.shortest_us(run)


def _memory(count: int, dtype: Any) -> Any:
    if dtype.is_floating_point:
        return measure.normal_numbers(count, dtype.numpy)
    return context.cupy().zeros(max(count, 1), dtype.numpy)
