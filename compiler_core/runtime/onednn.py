"""oneDNN's convolutions: whether the library is here and can do one, and the plan that generated code runs.

In: one call (name, attributes, layouts of operands and result): of a routine, whose activations lie channels last, or
of eager code, whose do not. Out: `verdict`: `Yes | No(why)`; `make_plan`: the address of a list of primitives with
their arguments, and the scratch bytes they need.

    plan     create, destroy, execute (functions), engine, stream, number of steps, steps
    step     primitive, number of arguments, arguments (name, place, memory descriptor)
    place    >= 0: the call's array of that number (operands, then the result); < 0: -(place + 1) bytes into the scratch
All words are i64; the reader is in ops/convolution/last.py. A weight is reordered into the blocks that the primitive
asks for (a blocked weight's gradient back), in the scratch; so are eager code's activations, but not those of routines.
The library is that of the wheel onednn-cpu-gomp (2023.2.0 is oneDNN 3.2): its C API, called by address. Plans are made
once a process, equal calls share one, and nothing of them is ever freed. Threads: OMP_NUM_THREADS, as OpenBLAS; a
forked child uses one. Method: https://oneapi-src.github.io/oneDNN, "Convolution", "Memory format propagation".
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from compiler_core import log
from compiler_core.dtype import float32
from compiler_core.errors import BackendError
from compiler_core.graph.parse import parse_attrs
from compiler_core.graph.print import print_attrs
from compiler_core.meta import TensorMeta
from compiler_core.ops.routine import Strided, contiguous, told_of_all_dims
from compiler_core.records import dataclass
from compiler_core.runtime.callback import Callback

_SPINS = 10_000  # of libgomp's threads, before they sleep: some tens of microseconds
_WHEEL, _FILE = "onednn-cpu-gomp", "libdnnl.so.3"
_LINE = 64
EAGER_PLANS = 4096
# values of oneDNN's enums (dnnl_types.h, dnnl_common_types.h), the same in all of 3.x
_CPU, _IN_ORDER, _F32, _ANY, _FORWARD, _DIRECT, _USER = 1, 1, 3, 1, 64, 1, 1
_QUERY_IMPLEMENTATION, _QUERY_SCRATCHPAD = 8, 136
_SRC, _DST, _WEIGHTS, _SCRATCHPAD = 1, 17, 33, 80
_DIFF_SRC, _DIFF_DST, _DIFF_WEIGHTS = 129, 145, 161
_QUERY = {_SRC: 129, _DIFF_SRC: 130, _WEIGHTS: 131, _DIFF_WEIGHTS: 132, _DST: 133, _DIFF_DST: 134}

_FORWARD_ROLES, _INPUT_ROLES = (_SRC, _WEIGHTS, _DST), (_DIFF_DST, _WEIGHTS, _DIFF_SRC)
_WEIGHT_ROLES = (_SRC, _DIFF_DST, _DIFF_WEIGHTS)
# name of the routine, or of eager code's op -> the arguments that its operands and its result are
_ROLES: dict[str, tuple[int, int, int]] = {
    "convolution_last": _FORWARD_ROLES,
    "convolution_last_input": _INPUT_ROLES,
    "convolution_last_weight": _WEIGHT_ROLES,
    "convolution": _FORWARD_ROLES,
    "convolution_input": _INPUT_ROLES,
    "convolution_weight": _WEIGHT_ROLES,
}
_ACTIVATIONS, _RESULTS = (_SRC, _DST, _DIFF_SRC, _DIFF_DST), (_DST, _DIFF_SRC, _DIFF_WEIGHTS)


@dataclass(frozen=True, slots=True)
class Yes:
    """oneDNN computes it well. implementation: which of its kernels."""

    implementation: str

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class No:
    """oneDNN does not compute it, and why."""

    why: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class ConvolutionPlan:
    """address: of the words. scratch_nbytes: what a run needs, from an address that is a multiple of 64 on."""

    address: int
    scratch_nbytes: int


# ---- the library


@cache
def find_onednn() -> ctypes.CDLL | No:
    """oneDNN 3.x of the wheel, or why it is not there."""
    for path in _places():
        if path.exists():
            try:
                library = _load(path)
            except OSError as error:
                return No(f"{path} cannot be loaded: {error}")
            library.dnnl_version.restype = ctypes.POINTER(ctypes.c_int)
            major, minor = library.dnnl_version()[:2]
            return library if major == 3 else No(f"{path} is oneDNN {major}.{minor}, and 3.x is needed")
    return No(f"{_FILE} is not installed: pip install {_WHEEL} (Linux, x86-64)")


def _load(path: Path) -> ctypes.CDLL:
    """The library; its OpenMP threads, if it is what brings libgomp, soon sleep when there is nothing for them to do.

    By default they spin for milliseconds, on cores that the pool's threads (runtime/pool.py) then compute on.
    """
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        return ctypes.CDLL(str(path))
    os.environ["GOMP_SPINCOUNT"] = str(_SPINS)  # libgomp reads it while it is loaded
    try:
        return ctypes.CDLL(str(path))
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def _places() -> Iterator[Path]:
    """Where the wheel puts the library: into the environment's lib; else what its record says."""
    yield Path(sysconfig.get_path("data"), "lib", _FILE)
    yield Path(sys.prefix, "lib", _FILE)
    from importlib.metadata import PackageNotFoundError, files

    try:
        record = files(_WHEEL) or []
    except PackageNotFoundError:
        return
    yield from (Path(str(entry.locate())) for entry in record if entry.name == _FILE)


class _OneDnn:
    """The library with an engine and a stream of the CPU. Every call's status is checked."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.engine = self.make("engine_create", _CPU, _size(0))
        self.stream = self.make("stream_create", self.engine, _IN_ORDER)
        self.attributes = self.make("primitive_attr_create")
        self.call("primitive_attr_set_scratchpad_mode", self.attributes, _USER)
        os.register_at_fork(after_in_child=lambda: library.omp_set_num_threads(1))  # its threads are not inherited

    def status(self, name: str, *args: Any) -> int:
        status: int = getattr(self.library, f"dnnl_{name}")(*args)
        return status

    def call(self, name: str, *args: Any) -> None:
        status = self.status(name, *args)
        if status:
            raise BackendError(f"oneDNN: dnnl_{name} failed", got=f"status {status}")

    def make(self, name: str, *args: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *args)
        return made

    def address_of(self, name: str) -> int:
        return ctypes.cast(getattr(self.library, f"dnnl_{name}"), ctypes.c_void_p).value or 0

    # ---- descriptors

    def strided(self, dims: tuple[int, ...], strides: tuple[int, ...]) -> ctypes.c_void_p:
        return self.make("memory_desc_create_with_strides", len(dims), _words(dims), _F32, _words(strides))

    def any_layout(self, dims: tuple[int, ...]) -> ctypes.c_void_p:
        return self.make("memory_desc_create_with_tag", len(dims), _words(dims), _F32, _ANY)

    def part(self, primitive: ctypes.c_void_p, query: int) -> ctypes.c_void_p:
        """A descriptor that a primitive descriptor holds."""
        function = self.library.dnnl_primitive_desc_query_md
        function.restype = ctypes.c_void_p
        return ctypes.c_void_p(function(primitive, query, 0))

    def nbytes(self, descriptor: ctypes.c_void_p) -> int:
        function = self.library.dnnl_memory_desc_get_size
        function.restype = ctypes.c_size_t
        found: int = function(descriptor)
        return found

    def implementation(self, primitive: ctypes.c_void_p) -> str:
        text = ctypes.c_char_p()
        self.call("primitive_desc_query", primitive, _QUERY_IMPLEMENTATION, 0, ctypes.byref(text))
        return (text.value or b"").decode()


def _size(value: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(value)


def _words(values: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


@cache
def _onednn() -> _OneDnn:
    library = find_onednn()
    if isinstance(library, No):
        raise BackendError("the oneDNN that generated code calls is not here", got=library.why)
    return _OneDnn(library)


# ---- one convolution


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A primitive descriptor; memory: argument -> descriptor of the caller's memory."""

    primitive: ctypes.c_void_p
    memory: dict[int, ctypes.c_void_p]


def _describe(routine: str, attrs: dict[str, Any], arrays: tuple[Strided, ...]) -> _Convolution | None:
    """The primitive descriptor of a call; None if oneDNN has none."""
    lib, roles, groups = _onednn(), _ROLES[routine], int(attrs["groups"])
    is_last = _lies_last(routine)
    told = {role: _dims(role, told_of_all_dims(layout), groups, is_last) for role, layout in zip(roles, arrays)}
    memory = {role: lib.strided(*dims) for role, dims in told.items()}
    asked = memory if is_last else {role: lib.any_layout(dims) for role, (dims, _) in told.items()}
    free = lib.any_layout((told.get(_WEIGHTS) or told[_DIFF_WEIGHTS])[0])
    src = asked.get(_SRC) or asked[_DIFF_SRC]
    dst = asked.get(_DST) or asked[_DIFF_DST]
    dilates = tuple(d - 1 for d in attrs["dilation"])
    sizes = [_words(tuple(v)) for v in (attrs["stride"], dilates, attrs["low"], attrs["high"])]
    forward, backward = ctypes.c_void_p(), ctypes.c_void_p()
    prefix, suffix = "convolution_", "_primitive_desc_create"
    engine, given = lib.engine, lib.attributes
    begin = (ctypes.byref(forward), engine, _FORWARD, _DIRECT)
    if lib.status(f"{prefix}forward{suffix}", *begin, src, free, None, dst, *sizes, given):
        return None
    if roles is _FORWARD_ROLES:
        return _Convolution(forward, memory)
    start = (ctypes.byref(backward), engine, _DIRECT)
    if roles is _INPUT_ROLES:
        status = lib.status(f"{prefix}backward_data{suffix}", *start, src, free, dst, *sizes, forward, given)
    else:
        status = lib.status(f"{prefix}backward_weights{suffix}", *start, src, free, None, dst, *sizes, forward, given)
    return None if status else _Convolution(backward, memory)


@dataclass(frozen=True, slots=True)
class Told:
    """A convolution as oneDNN is told of it. of_input: its gradient by the input, which a transposed convolution is.
    src, weights, dst: (dims, strides)."""

    of_input: bool
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    src: tuple[tuple[int, ...], tuple[int, ...]]
    weights: tuple[tuple[int, ...], tuple[int, ...]]
    dst: tuple[tuple[int, ...], tuple[int, ...]]


def told_of(call: Callback) -> Told:
    """A planned call. Raises BackendError for the gradient of a weight, which no inference computes."""
    if call.routine == "convolution_last_weight":
        raise BackendError(f"{call.routine} is no convolution of an inference")
    attrs, roles = parse_attrs(call.attrs), _ROLES[call.routine]
    arrays = map(told_of_all_dims, call.arrays)
    layouts = [_dims(role, layout, int(attrs["groups"])) for role, layout in zip(roles, arrays)]
    of_input, dilation = call.routine == "convolution_last_input", tuple(d - 1 for d in attrs["dilation"])
    src, weights, dst = reversed(layouts) if of_input else layouts
    low, high = tuple(attrs["low"]), tuple(attrs["high"])
    return Told(of_input, tuple(attrs["stride"]), dilation, low, high, src, weights, dst)


def _lies_last(routine: str) -> bool:
    """Whether activations have channels last, and must stay so."""
    return routine.startswith("convolution_last")


def _dims(
    role: int, layout: Strided, groups: int, is_last: bool = True
) -> tuple[tuple[int, ...], tuple[int, ...]]:  # fmt: skip
    """oneDNN's logical dims and strides: (N, C, *n), or (O, I, *k), a weight of groups (groups, O/groups, I, *k)."""
    shape, strides = layout.shape, layout.strides
    if role in _ACTIVATIONS:
        if not is_last:
            return shape, strides
        order = (0, len(shape) - 1, *range(1, len(shape) - 1))
        return tuple(shape[d] for d in order), tuple(strides[d] for d in order)
    if groups == 1:
        return shape, strides
    per_group = shape[0] // groups
    return (groups, per_group, *shape[1:]), (per_group * strides[0], *strides)


def _is_reference(implementation: str) -> bool:
    return implementation.startswith("ref")


@cache
def verdict(call: Callback) -> Yes | No:
    """Whether oneDNN computes `call`, with a kernel that is worth it."""
    library = find_onednn()
    if isinstance(library, No):
        return library
    found = _describe(call.routine, parse_attrs(call.attrs), call.arrays)
    if found is None:
        return No("oneDNN refuses it")
    implementation = _onednn().implementation(found.primitive)
    if _is_reference(implementation):
        return No("oneDNN has only its reference implementation")
    return Yes(implementation)


def told_verdict(call: Callback) -> Yes | No:
    """`verdict`; each reason for a No is told once."""
    found = verdict(call)
    if isinstance(found, No):
        what = "convolutions are computed as windows and matrix products, which is slower"
        log.warn_once(f"onednn {found.why}", f"{what}: {found.why}")
    return found


# ---- plans


@dataclass(slots=True)
class _Steps:
    """The words of a plan under construction; scratch_nbytes: so far."""

    words: list[int]
    scratch_nbytes: int = 0

    def reserve(self, nbytes: int) -> int:
        """The place of fresh scratch memory."""
        place = -(self.scratch_nbytes + 1)
        self.scratch_nbytes += (nbytes + _LINE - 1) // _LINE * _LINE
        return place

    def add(self, primitive: ctypes.c_void_p, arguments: list[tuple[int, int, ctypes.c_void_p]]) -> None:
        self.words += [primitive.value or 0, len(arguments)]
        for name, place, descriptor in arguments:
            self.words += [name, place, descriptor.value or 0]


_Ends: TypeAlias = tuple[tuple[ctypes.c_void_p, int], tuple[ctypes.c_void_p, int]]  # descriptor, place: from, to
_kept: list[Any] = []  # the words of all plans
_of_eager: list[ConvolutionPlan] = []


@cache
def make_plan(call: Callback) -> ConvolutionPlan:
    """The plan of `call`. Raises BackendError if oneDNN is not here, or does not do it."""
    lib = _onednn()
    found = _describe(call.routine, parse_attrs(call.attrs), call.arrays)
    if found is None:
        raise BackendError(f"oneDNN does not compute {call.routine} {call.attrs}", got=str(call.arrays))
    if _is_reference(lib.implementation(found.primitive)):
        what = f"{call.routine} of {', '.join(str(array.meta) for array in call.arrays)}"
        log.warn_once(f"onednn {what}", f"oneDNN computes {what} by its reference implementation, which is slow")
    steps = _Steps([])
    before: list[_Ends] = []
    after: list[_Ends] = []
    arguments = []
    for place, role in enumerate(_ROLES[call.routine]):
        own = found.memory[role]
        blocked = lib.part(found.primitive, _QUERY[role])
        if not lib.library.dnnl_memory_desc_equal(own, blocked):
            inside = steps.reserve(lib.nbytes(blocked))
            outer, inner = (own, place), (blocked, inside)
            if role in _RESULTS:
                after.append((inner, outer))
            else:
                before.append((outer, inner))
            own, place = blocked, inside
        arguments.append((role, place, own))
    scratchpad = lib.part(found.primitive, _QUERY_SCRATCHPAD)
    arguments.append((_SCRATCHPAD, steps.reserve(lib.nbytes(scratchpad)), scratchpad))
    for ends in before:
        _add_reorder(steps, ends)
    steps.add(lib.make("primitive_create", found.primitive), arguments)
    for ends in after:
        _add_reorder(steps, ends)
    functions = [lib.address_of(name) for name in ("memory_create", "memory_destroy", "primitive_execute")]
    count = 1 + len(before) + len(after)
    head = [*functions, lib.engine.value or 0, lib.stream.value or 0, count]
    words = _words((*head, *steps.words))
    _kept.append(words)
    return ConvolutionPlan(ctypes.addressof(words), steps.scratch_nbytes)


@lru_cache(maxsize=4 * EAGER_PLANS)
def eager_plan(name: str, shapes: tuple[tuple[int, ...], ...], **attrs: Any) -> ConvolutionPlan | None:
    """Of convolution, convolution_input or convolution_weight over dense f32 arrays, channels first; None: not its own.

    shapes: of the operands and the result. There are EAGER_PLANS at most, as a plan is never freed: then a warning.
    """
    arrays = tuple(contiguous(TensorMeta(shape, float32)) for shape in shapes)
    call = Callback(name, print_attrs(attrs), arrays)
    if not all(array.numel for array in arrays) or not told_verdict(call):
        return None
    if len(_of_eager) >= EAGER_PLANS:
        log.warn_once("eager plans", f"oneDNN has plans for {EAGER_PLANS} eager convolutions: others are slower")
        return None
    _of_eager.append(make_plan(call))
    return _of_eager[-1]


def _add_reorder(steps: _Steps, ends: _Ends) -> None:
    lib = _onednn()
    (source, from_place), (target, to_place) = ends
    made = lib.make("reorder_primitive_desc_create", source, lib.engine, target, lib.engine, lib.attributes)
    scratchpad = lib.part(made, _QUERY_SCRATCHPAD)
    arguments = [(_SRC, from_place, source), (_DST, to_place, target)]
    arguments.append((_SCRATCHPAD, steps.reserve(lib.nbytes(scratchpad)), scratchpad))
    steps.add(lib.make("primitive_create", made), arguments)
