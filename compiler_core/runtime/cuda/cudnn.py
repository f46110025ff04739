"""cuDNN's convolutions: whether the library is here and has one, which of its engines is fastest, and plans to run.

In: one call (a `Callback`: the routine's name, attributes, layouts of operands and result, all with channels last).
Out: `identity`, which stands in cache keys; `choose`: the engine for a call, measured on the current device when code
is compiled, or why there is none; `make_plan`: the address of an execution plan of that engine, when code is loaded;
`eager_plan`: the plan of a call of eager code.

Its graph API is called by address (ctypes): a graph of one operation, the heuristics' list of engine configurations,
a plan of each. An engine is known by the heuristics' mode and its place in that list, which one version of cuDNN
repeats on one kind of device. Engines whose results differ from run to run are not taken, nor are those that multiply
or add in less than f32 what is promised in f32. Plans live as long as the process; equal calls share one.
Source: cuDNN 9, cudnn_graph.h (numbers of descriptors, attributes and types).
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from compiler_core.config import config
from compiler_core.dtype import DType, bfloat16, float16, float32
from compiler_core.errors import DeviceError
from compiler_core.graph.parse import parse_attrs
from compiler_core.meta import Shape
from compiler_core.ops.routine import Strided, told_of_all_dims
from compiler_core.records import dataclass
from compiler_core.runtime.cache import Manifest, find, keep, make_key
from compiler_core.runtime.callback import Callback
from compiler_core.runtime.cuda import context, driver, measure, replay

TYPES: dict[DType, int] = {float16: 2, bfloat16: 9}  # cudnnDataType_t, of what compiled graphs give it
_F32 = 0
EAGER_TYPES: dict[DType, int] = {**TYPES, float32: _F32}
_MODES = (3, 1)  # of the heuristics: A, B
_PER_MODE = 5  # engines of each mode that are measured
_MAX_WORKSPACE = 512 << 20
ALIGNMENT = 16  # bytes on which operands and results start
_FILE = "engine.json"

# cudnnBackendDescriptorType_t
_CONVOLUTION, _ENGINE, _CONFIG, _HEURISTICS, _PLAN, _GRAPH, _PACK, _TENSOR = 1, 2, 3, 4, 5, 15, 16, 17
# cudnnBackendAttributeType_t
_HANDLE, _DTYPE, _INT64, _FLOAT, _POINTER, _CONV_MODE, _HEUR_MODE, _NOTE, _DESCRIPTOR = 0, 1, 3, 4, 6, 7, 8, 11, 15
# cudnnBackendNumericalNote_t: down-converted inputs, reduced precision of sums, results that differ, Winograd's forms
_REFUSED_NOTES = frozenset({1, 2, 4, 5, 6, 7, 8})
_TF32_NOTES = frozenset({1})  # which f32 is taken with where tf32 is permitted


@dataclass(frozen=True, slots=True)
class _Role:
    """An operation. first: of its attributes alpha, beta, convolution; then which attribute each array of a call is."""

    descriptor: int
    first: int
    arrays: tuple[int, int, int]


_ROLES = {
    "convolution_cudnn": _Role(10, 700, (704, 703, 705)),  # x, weight, y
    "convolution_cudnn_input": _Role(12, 706, (711, 709, 710)),  # dy, weight, dx
    "convolution_cudnn_weight": _Role(11, 712, (716, 717, 715)),  # x, dy, dw
}


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine: the place `place` of the list of heuristics' mode `mode`. seconds: measured."""

    mode: int
    place: int
    workspace: int
    seconds: float


# ---- the library


_enabled = True


def enable(enabled: bool) -> None:
    """Whether code that is compiled from now on may call cuDNN."""
    global _enabled
    _enabled = enabled
    replay.Noting.settings += 1


def is_enabled() -> bool:
    return _enabled


def measure_all(wanted: bool) -> None:
    """Whether eager code measures the engines of all convolutions, not of those in groups alone."""
    global _measures_all
    _measures_all = wanted
    replay.Noting.settings += 1


_measures_all = False


def measures_all() -> bool:
    return _measures_all


def why_not() -> str:
    """Why there are no calls of cuDNN; "" if there are."""
    try:
        driver.function("cudnnGetVersion")
    except DeviceError as error:
        return str(error)
    return ""


def version() -> int:
    """As cuDNN counts them: 91200 is 9.12.0. Raises DeviceError where it is missing."""
    return int(driver.function("cudnnGetVersion")())


def identity() -> str:
    """For cache keys: what decides which engines there are, and which is fastest. A device must be there."""
    properties = context.cupy().cuda.runtime.getDeviceProperties(context.cupy().cuda.Device().id)
    return f"cuDNN {version()} on {properties['name'].decode()}"


# ---- descriptors


def _make(kind: int) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    driver.call("cudnnBackendCreateDescriptor", kind, ctypes.byref(made))
    return made


def _set(descriptor: ctypes.c_void_p, attribute: int, kind: int, values: Any, count: int = 1) -> None:
    number = ctypes.c_int64(count)
    driver.call("cudnnBackendSetAttribute", descriptor, attribute, kind, number, ctypes.byref(values))


def _set_int64s(descriptor: ctypes.c_void_p, attribute: int, values: Sequence[int]) -> None:
    _set(descriptor, attribute, _INT64, (ctypes.c_int64 * len(values))(*values), len(values))


def _set_descriptor(descriptor: ctypes.c_void_p, attribute: int, value: ctypes.c_void_p) -> None:
    _set(descriptor, attribute, _DESCRIPTOR, value)


def _finalize(descriptor: ctypes.c_void_p) -> ctypes.c_void_p:
    driver.call("cudnnBackendFinalize", descriptor)
    return descriptor


def _tensor(layout: Strided, number: int) -> ctypes.c_void_p:
    """Dims in cuDNN's order (N, C, H, W), strides as it lies."""
    layout = told_of_all_dims(layout)
    dims, strides = ([sizes[d] for d in (0, 3, 1, 2)] for sizes in (layout.shape, layout.strides))
    tensor = _make(_TENSOR)
    _set(tensor, 901, _DTYPE, ctypes.c_int(EAGER_TYPES[layout.dtype]))
    _set_int64s(tensor, 902, dims)
    _set_int64s(tensor, 903, strides)
    _set_int64s(tensor, 906, [number])
    _set_int64s(tensor, 900, [ALIGNMENT])
    return _finalize(tensor)


def _convolution(attrs: dict[str, Any]) -> ctypes.c_void_p:
    made = _make(_CONVOLUTION)
    _set(made, 100, _DTYPE, ctypes.c_int(_F32))
    _set(made, 101, _CONV_MODE, ctypes.c_int(1))  # cross-correlation
    _set_int64s(made, 106, [2])
    for attribute, name in ((102, "dilation"), (103, "stride"), (104, "high"), (105, "low")):
        _set_int64s(made, attribute, attrs[name])
    return _finalize(made)


def _graph(call: Callback) -> ctypes.c_void_p:
    """The graph of one operation."""
    role = _ROLES[call.routine]
    operation = _make(role.descriptor)
    for number, (attribute, layout) in enumerate(zip(role.arrays, call.arrays), 1):
        _set_descriptor(operation, attribute, _tensor(layout, number))
    _set(operation, role.first, _FLOAT, ctypes.c_float(1.0))
    _set(operation, role.first + 1, _FLOAT, ctypes.c_float(0.0))
    _set_descriptor(operation, role.first + 2, _convolution(parse_attrs(call.attrs)))
    graph = _make(_GRAPH)
    _set(graph, 800, _HANDLE, ctypes.c_void_p(_handle()))
    _set_descriptor(graph, 801, _finalize(operation))
    return _finalize(graph)


def _handle() -> int:
    return context.dnn_handle(context.cupy().cuda.runtime.getDevice())


# ---- engines


def _configurations(graph: ctypes.c_void_p, mode: int, most: int) -> list[ctypes.c_void_p]:
    """What the heuristics of `mode` propose, best first. Raises DeviceError where they have nothing."""
    heuristics = _make(_HEURISTICS)
    _set_descriptor(heuristics, 201, graph)
    _set(heuristics, 200, _HEUR_MODE, ctypes.c_int(mode))
    _finalize(heuristics)
    found = [_make(_CONFIG) for _ in range(most)]
    table, count = (ctypes.c_void_p * most)(*found), ctypes.c_int64()
    get = ("cudnnBackendGetAttribute", heuristics, 202, _DESCRIPTOR, ctypes.c_int64(most))
    driver.call(*get, ctypes.byref(count), ctypes.byref(table))
    return found[: count.value]


def _notes(configuration: ctypes.c_void_p) -> set[int]:
    """What an engine says of its numbers."""
    engine, count = _make(_ENGINE), ctypes.c_int64()
    get = "cudnnBackendGetAttribute"
    one = ctypes.c_int64(1)
    driver.call(get, configuration, 300, _DESCRIPTOR, one, ctypes.byref(count), ctypes.byref(engine))
    notes = (ctypes.c_int * 16)()
    driver.call(get, engine, 1303, _NOTE, ctypes.c_int64(16), ctypes.byref(count), ctypes.byref(notes))
    return set(notes[: count.value])


def _plan(configuration: ctypes.c_void_p) -> tuple[ctypes.c_void_p, int]:
    """The execution plan of an engine, and the bytes of workspace that it wants."""
    plan, count, nbytes = _make(_PLAN), ctypes.c_int64(), ctypes.c_int64()
    _set(plan, 400, _HANDLE, ctypes.c_void_p(_handle()))
    _set_descriptor(plan, 401, configuration)
    _finalize(plan)
    get = ("cudnnBackendGetAttribute", plan, 402, _INT64, ctypes.c_int64(1))
    driver.call(*get, ctypes.byref(count), ctypes.byref(nbytes))
    return plan, nbytes.value


def _candidates(call: Callback, tf32: bool = False) -> Iterator[tuple[int, int, ctypes.c_void_p, int]]:
    """(mode, place, plan, bytes of workspace) of engines that compute `call` as is promised. tf32: it is permitted."""
    graph, refused = _graph(call), _REFUSED_NOTES - _TF32_NOTES if tf32 else _REFUSED_NOTES
    for mode in _MODES:
        try:
            configurations = _configurations(graph, mode, _PER_MODE)
        except DeviceError:
            continue
        for place, configuration in enumerate(configurations):
            try:
                if _notes(configuration) & refused:
                    continue
                plan, workspace = _plan(configuration)
            except DeviceError:
                continue  # not on this device, after all
            if workspace <= _MAX_WORKSPACE:
                yield mode, place, plan, workspace


# ---- measuring


def choose(call: Callback) -> Choice | str:
    """The fastest engine for `call` on the current device, or why there is none. Found once a kind of device."""
    key = call, identity()
    if key not in _choices:
        _choices[key] = _choose(call)
    return _choices[key]


_choices: dict[tuple[Callback, str], Choice | str] = {}


def _choose(call: Callback) -> Choice | str:
    try:
        candidates = list(_candidates(call))
    except DeviceError as error:
        return str(error)
    arrays = _arrays_of(call) if config.measure else []
    if candidates and not arrays:
        mode, place, _, workspace = candidates[0]
        return Choice(mode, place, workspace, 0.0)
    best: Choice | None = None
    for mode, place, plan, workspace in candidates:
        try:
            seconds = _measured(plan, [array.data.ptr for array in arrays], workspace)
        except (DeviceError, MemoryError):
            continue
        if best is None or seconds < best.seconds:
            best = Choice(mode, place, workspace, seconds)
    return best or "cuDNN has no engine for it"


def _arrays_of(call: Callback) -> list[Any]:
    """What `call` can be measured on; none where there is no memory for it."""
    try:
        return [measure.normal_numbers(layout.span, layout.dtype.numpy) for layout in call.arrays]
    except MemoryError:
        return []


def _measured(plan: ctypes.c_void_p, addresses: list[int], workspace: int) -> float:
    """The time of a run, in seconds."""
    space = context.cupy().empty(max(workspace, 1), "u1")
    return measure.shortest_us(lambda: execute(plan, addresses, space.data.ptr)) * 1e-6


def execute(plan: ctypes.c_void_p, addresses: Sequence[int], workspace: int) -> None:
    """Run `plan` on CuPy's current stream.

    A pack of pointers is made anew each time: one that is complete cannot be changed.
    """
    handle, stream = ctypes.c_void_p(_handle()), context.cupy().cuda.get_current_stream().ptr
    pack, count = replay.Handle(), len(addresses)
    numbers = (ctypes.c_int64 * count)(*range(1, count + 1))
    replay.library("cudnnSetStream", handle, ctypes.c_void_p(stream))
    replay.library("cudnnBackendCreateDescriptor", _PACK, replay.Written(pack))
    with replay.undone("cudnnBackendDestroyDescriptor", pack):
        for attribute, kind, n, values in (
            (1000, _INT64, count, ctypes.byref(numbers)),
            (1001, _POINTER, count, replay.Table(tuple(addresses))),
            (1003, _POINTER, 1, replay.Table((workspace,))),
        ):
            replay.library("cudnnBackendSetAttribute", pack, attribute, kind, ctypes.c_int64(n), values)
        replay.library("cudnnBackendFinalize", pack)
        replay.library("cudnnBackendExecute", handle, plan, pack)


# ---- plans


def make_plan(call: Callback) -> int:
    """The address of the plan of `call` on the current device; attributes name the engine.

    Raises DeviceError where cuDNN has it no longer.
    """
    key = (call, context.cupy().cuda.runtime.getDevice())
    if key not in _plans:
        attrs = parse_attrs(call.attrs)
        mode, place = int(attrs["mode"]), int(attrs["place"])
        _plans[key], _ = _plan(_configurations(_graph(call), mode, place + 1)[place])
    return _plans[key].value or 0


_plans: dict[tuple[Callback, int], ctypes.c_void_p] = {}


class EagerPlan(NamedTuple):
    """A plan's address, the bytes of workspace that it wants, and the shape of its result, channels last."""

    address: ctypes.c_void_p
    workspace: int
    shape: Shape


def eager_plan(key: Hashable, call: Callable[[], Callback], *, is_measured: bool) -> EagerPlan | str:
    """The plan for `call`, by which `key` is known; or why there is none. is_measured: of the engine that is fastest
    (`choose`); else the one that is proposed first. f32 may be tf32 where that is permitted, and is not measured."""
    tf32 = context.tf32_is_permitted()
    key = (key, is_measured, tf32, context.cupy().cuda.runtime.getDevice())
    if key not in _eager_plans:
        try:
            told = call()
            plan = _fastest_plan(told) if is_measured else _first_plan(told, tf32)
            _eager_plans[key] = EagerPlan(*plan, told.arrays[-1].shape) if plan else "cuDNN has no engine for it"
        except DeviceError as error:
            _eager_plans[key] = str(error)
    return _eager_plans[key]


_eager_plans: dict[Hashable, EagerPlan | str] = {}


def _first_plan(call: Callback, tf32: bool) -> tuple[ctypes.c_void_p, int] | None:
    return next(((plan, workspace) for _, _, plan, workspace in _candidates(call, tf32)), None)


def _fastest_plan(call: Callback) -> tuple[ctypes.c_void_p, int] | None:
    replay.spoil()  # what is measured is no part of a call that is noted
    choice = _kept_choice(call)
    if isinstance(choice, str):
        return None
    return _plan(_configurations(_graph(call), choice.mode, choice.place + 1)[choice.place])


def _kept_choice(call: Callback) -> Choice | str:
    """`choose`, whose answer the artefact cache keeps once it was measured: other processes have the same bits."""
    key = make_key({"kind": "engine of cuDNN", "call": json.dumps(call.to_json()), "cudnn": identity()})
    entry = find(key) if config.use_cache and config.measure else None
    if entry is not None:
        return Choice(**json.loads(entry.read(_FILE)))
    found = choose(call)
    if config.use_cache and not isinstance(found, str) and found.seconds:
        text = json.dumps(asdict(found))

        def build(folder: Path) -> Manifest:
            (folder / _FILE).write_text(text)
            return {}

        keep(key, build)
    return found
