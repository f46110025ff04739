"""Calls one entry point of a compiled shared object: arrays in, arrays out, the GIL released in between.

In: an `EntryPoint` (what the generated function expects), a loaded shared object, the constants of its graph.
Out: `NativeExecutable`, the backend's `Executable`.

    int32_t ENTRY(void** args, char* arena, const void* const* lib, const dc_events* events)
                                                                         args: inputs, constants, outputs
    int32_t dc_call(ENTRY, spec, inputs, outputs, arena, lib, events)    reads array objects, checks, calls ENTRY

Invariants: no array reaches native code before its type, dtype, shape and contiguity were compared with the entry
point's: in C by `dc_call` (its source is `CALL_HELPER`), in Python where the array does not fit as it is. Outputs that
the caller gave no place for come from pools and stay the caller's until dropped. An output must not overlap an input;
only in an element-wise graph, or by `over_inputs`, may it be the very array. An array that an event is about is never
copied.
Return codes: 0 done; k > 0: check k-1 failed; -(k+1): argument k does not fit; events.FAILED: a wait failed;
callback.RAISED: a routine that was called back raised; callback.LIBRARY_FAILED: a library said that it failed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.config import config
from compiler_core.device import copy_of
from compiler_core.dtype import by_name, of
from compiler_core.errors import (
    BackendError,
    CacheError,
    CompilationError,
    DistCompileError,
    DTypeError,
    ShapeError,
    failed_check,
)
from compiler_core.events import FAILED, Dispatch, Events
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass
from compiler_core.runtime import pool
from compiler_core.runtime.blas import routine_table
from compiler_core.runtime.callback import LIBRARY_FAILED, RAISED, Callback, Callbacks
from compiler_core.runtime.lasting_memory import OutputPool, arena_address, expect_arena, nested_arena, scratch_offset
from compiler_core.runtime.layout import C_CONTIGUOUS_ALIGNED, WRITEABLE, array_layout
from compiler_core.runtime.profiler import ProfileSource, StepCost, announce, instrumented, step_seconds

if TYPE_CHECKING:
    from compiler_core.runtime.onednn import ConvolutionPlan

# C++ source of the calling helper, part of every generated shared object. `spec` is what `_make_spec` packs.
CALL_HELPER = """\
struct dc_events { void* self; void (*signal)(void* self, int64_t k); int32_t (*wait)(void* self, int64_t k); };
typedef int32_t (*dc_entry)(void** args, char* arena, const void* const* lib, const dc_events* events);

// Reads the addresses out of NumPy's array objects; says which one is not of the expected type, dtype, shape or layout.
static const int64_t* dc_unpack(char* const* objects, int64_t count, int64_t want, const int64_t* spec,
                                const int64_t* expected, void** args, int64_t* misfit) {
  for (int64_t k = 0; k < count; ++k) {
    const char* array = objects[k];
    const int64_t rank = expected[1];
    bool fits = *(const int64_t*)(array + spec[0]) == spec[6];  // an ndarray: only then there are fields to read
    if (fits) {
      const int64_t* shape = *(const int64_t* const*)(array + spec[3]);
      fits = *(const int64_t*)(array + spec[4]) == expected[0] && *(const int32_t*)(array + spec[2]) == rank &&
             (*(const int32_t*)(array + spec[5]) & want) == want;
      for (int64_t d = 0; fits && d < rank; ++d) fits = shape[d] == expected[2 + d];
      args[k] = *(void* const*)(array + spec[1]);
    }
    if (!fits && *misfit < 0) *misfit = k;
    expected += 2 + rank;
  }
  return expected;
}

extern "C" __attribute__((visibility("default"))) int32_t dc_call(
    dc_entry entry, const int64_t* spec, char* const* inputs, char* const* outputs, char* arena,
    const void* const* lib, const dc_events* events) {
  void** args = (void**)__builtin_alloca((spec[9] + spec[10] + 1) * sizeof(void*));
  int64_t misfit = -1, misfit_out = -1;
  const int64_t* rest = dc_unpack(inputs, spec[9], spec[7], spec, spec + 11, args, &misfit);
  dc_unpack(outputs, spec[10], spec[7] | spec[8], spec, rest, args + spec[9], &misfit_out);
  if (misfit >= 0) return (int32_t)(-misfit - 1);
  if (misfit_out >= 0) return (int32_t)(-(spec[9] + misfit_out) - 1);
  return entry(args, arena, lib, events);
}
"""


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """What one generated function expects. messages[k]: what to say when check k fails.

    announced, awaited: the outputs that it signals, the inputs that it waits for. symbols: the library routines it
    calls; callbacks: those it calls back for; planned: calls that oneDNN prepares. Their addresses make `lib`, in this
    order; before it stands that of `numbers`: the sizes of code for many sizes (codegen/cpp/many_sizes.py).
    scratch_nbytes: what calls that are not planned need behind the arena; scratch_share: of it, for one thread.
    over_inputs: (output, input) pairs that may be one memory (schedule/over_inputs.py). spent: the inputs that it
    writes over.
    """

    symbol: str
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    arena_nbytes: int
    messages: tuple[str, ...] = ()
    announced: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()
    symbols: tuple[str, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    planned: tuple[Callback, ...] = ()
    scratch_nbytes: int = 0
    scratch_share: int = 0
    numbers: tuple[int, ...] = ()
    over_inputs: tuple[tuple[int, int], ...] = ()
    spent: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "symbol": self.symbol,
            "inputs": [_meta_to_json(m) for m in self.inputs],
            "outputs": [_meta_to_json(m) for m in self.outputs],
            "arena_nbytes": self.arena_nbytes,
            "messages": list(self.messages),
            "announced": list(self.announced),
            "awaited": list(self.awaited),
            "symbols": list(self.symbols),
            "callbacks": [callback.to_json() for callback in self.callbacks],
            "planned": [call.to_json() for call in self.planned],
            "scratch_nbytes": self.scratch_nbytes,
            "scratch_share": self.scratch_share,
            "numbers": list(self.numbers),
            "over_inputs": [list(pair) for pair in self.over_inputs],
            "spent": list(self.spent),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> EntryPoint:
        return EntryPoint(
            data["symbol"],
            tuple(_meta_from_json(m) for m in data["inputs"]),
            tuple(_meta_from_json(m) for m in data["outputs"]),
            data["arena_nbytes"],
            tuple(data["messages"]),
            tuple(data["announced"]),
            tuple(data["awaited"]),
            tuple(data["symbols"]),
            tuple(Callback.from_json(row) for row in data["callbacks"]),
            tuple(Callback.from_json(row) for row in data["planned"]),
            data["scratch_nbytes"],
            data["scratch_share"],
            tuple(data["numbers"]),
            tuple((output, input) for output, input in data["over_inputs"]),
            tuple(data["spent"]),
        )


def _meta_to_json(meta: TensorMeta) -> list[Any]:
    return [meta.dtype.short, *meta.shape]


def _meta_from_json(data: list[Any]) -> TensorMeta:
    return TensorMeta(tuple(data[1:]), by_name(data[0]))


def load_library(path: Path) -> ctypes.CDLL:
    """Load a generated shared object, with the pool if it has threads. CacheError if the dynamic loader refuses it."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise CacheError("a compiled artefact cannot be loaded", where=str(path), got=str(error)) from error
    pool.give(library)
    return library


def make_plans(calls: Sequence[Callback]) -> list[ConvolutionPlan]:
    """What the library prepares for planned calls, in order; without any it is not even imported."""
    if not calls:
        return []
    from compiler_core.runtime.onednn import make_plan

    return [make_plan(call) for call in calls]


class NativeExecutable:
    """One compiled graph. Call it with the graph's inputs; safe to call from several threads at once.

    entry: what the function expects. constants: the graph's constant arrays, in order, passed after the inputs.
    costs: what each step moves and computes; profile_source: how to build an instrumented twin (see profiler.py).
    explain: (inputs, the error of a check that failed) -> that error, with what else can be found out.
    calls: how often it was called.
    """

    def __init__(
        self,
        entry: EntryPoint,
        library: ctypes.CDLL,
        constants: Sequence[Array] = (),
        *,
        costs: Sequence[StepCost] = (),
        profile_source: ProfileSource | None = None,
        explain: Callable[[Sequence[Array], DistCompileError], DistCompileError] = lambda inputs, error: error,
    ) -> None:
        self.entry, self.symbol, self.explain = entry, entry.symbol, explain
        self.costs, self.profile_source = tuple(costs), profile_source
        self.calls = 0
        self.output_metas = entry.outputs
        self.over_inputs, self.spends = frozenset(entry.over_inputs), entry.spent
        self._own_library = library
        self.constants = tuple(np.ascontiguousarray(c) for c in constants)
        self._metas = (*entry.inputs, *(TensorMeta(c.shape, of(c.dtype)) for c in self.constants))
        self._pools = tuple(OutputPool(meta) for meta in entry.outputs)
        self._lock = Lock()
        self._callbacks = Callbacks(entry.callbacks)
        plans = make_plans(entry.planned)
        more = [*self._callbacks.addresses, *(plan.address for plan in plans)]
        self._numbers = (ctypes.c_int64 * len(entry.numbers))(*entry.numbers)
        self._table = routine_table(
            entry.symbols, more, before=ctypes.addressof(self._numbers)
        )  # held, as are callbacks
        self._planned_nbytes = max((plan.scratch_nbytes for plan in plans), default=0)
        scratch_nbytes = max(entry.scratch_nbytes, self._planned_nbytes)
        self._arena_nbytes = scratch_offset(entry.arena_nbytes) + scratch_nbytes
        expect_arena(self._arena_nbytes)
        self._routines = ctypes.addressof(self._table) + ctypes.sizeof(ctypes.c_void_p)
        self._layout = array_layout()
        self._items = self._layout.items if self._layout else 0
        self._spec = self._make_spec()
        self._spec_address = ctypes.addressof(self._spec)
        self.use_library(None)
        if profile_source is not None:
            announce(self)

    def use_library(self, library: ctypes.CDLL | None) -> None:
        """Call into `library`, an instrumented twin of the own one, from now on; None: into the own one."""
        self.library = library or self._own_library  # kept alive as long as its code may run
        function = ctypes.cast(getattr(self.library, self.entry.symbol), ctypes.c_void_p).value or 0
        call = self.library.dc_call
        call.argtypes = [ctypes.c_void_p] * 7
        call.restype = ctypes.c_int32
        self._call, self._function = call, function

    def made(self, output: int, array: Array) -> bool:
        """Whether an array is memory for an output that is handed out again."""
        return any(array is other for other in self._pools[output]._arrays)

    @property
    def working_nbytes(self) -> int:
        """What a call computes with: its arena, and of the scratch memory what its threads come to."""
        touched = min(self.entry.scratch_nbytes, self.entry.scratch_share * config.num_threads)
        return self.entry.arena_nbytes + max(touched, self._planned_nbytes)

    # -- measuring (profiler.py)

    def start_measuring(self) -> None:
        """Call an instrumented twin from now on."""
        assert self.profile_source is not None
        self.use_library(instrumented(self.profile_source))
        seconds = step_seconds(self.library, self.symbol, len(self.costs))
        seconds[:] = [0.0] * len(seconds)
        self.calls = 0

    def stop_measuring(self) -> list[float]:
        """The seconds of each step, of all calls together; then the own library again."""
        seconds = list(step_seconds(self.library, self.symbol, len(self.costs)))
        self.use_library(None)
        return seconds

    def copy_rate(self) -> float:
        """Not known: how much of an array lies in a CPU's caches differs from call to call."""
        return 0.0

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        """Run on `inputs`. outs[i], where given, receives output i and is returned in its place.

        It leaves the inputs as they are, `spend` does not. events: see `Executable`. Raises ShapeError or DTypeError
        for an array unlike the entry point's, IndexError_ for an index out of bounds, and what events raise.
        """
        if self.spends:
            inputs = [copy_of(array) if k in self.spends else array for k, array in enumerate(inputs)]
        return self.spend(inputs, outs, events)

    def spend(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        """As a call; but the inputs that it `spends` are written over."""
        if events is None:
            try:
                return self._run(inputs, outs, None, arena_address(self._arena_nbytes))
            except (DistCompileError, OSError, MemoryError):
                raise
            except Exception as error:
                if self._callbacks.gave(error):  # the program's own
                    raise
                raise self._named(error) from error
        arena = arena_address(self._arena_nbytes)
        with Dispatch(events) as dispatch, nested_arena():
            return self._run(inputs, outs, dispatch, arena)

    def _named(self, error: Exception) -> CompilationError:
        """What no catalogue has, as an error of the step "run"."""
        name = self.entry.symbol
        text = f"{type(error).__name__} in step 'run' of graph {name}: {error}"
        remedy = "report this, with the script that DISTCOMPILE_REPRO=error writes"
        return CompilationError(text, step="run", graph=name, remedy=remedy)

    def _run(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None, dispatch: Dispatch | None, arena: int
    ) -> list[Array]:
        self.calls += 1
        results = self._destinations(outs)
        if len(inputs) != len(self.entry.inputs):
            raise BackendError(f"{self.entry.symbol} takes {len(self.entry.inputs)} inputs, got {len(inputs)}")
        if self._layout is None:
            return self._call_by_address(inputs, results, dispatch, arena)
        given, places = (*inputs, *self.constants), tuple(results)
        code = self._call(
            self._function,
            self._spec_address,
            id(given) + self._items,
            id(places) + self._items,
            arena,
            self._routines,
            None if dispatch is None else dispatch.address,
        )
        if code < 0:
            return self._call_by_address(inputs, results, dispatch, arena)
        if code > 0:
            self._fail(code, dispatch, inputs)
        return results

    def _destinations(self, outs: Sequence[Array | None] | None) -> list[Array]:
        if outs is None:
            with self._lock:
                return [pool.take() for pool in self._pools]
        if len(outs) != len(self._pools):
            raise BackendError(f"{self.entry.symbol} has {len(self._pools)} outputs, got {len(outs)} places for them")
        with self._lock:
            return [pool.take() if out is None else out for pool, out in zip(self._pools, outs)]

    def _make_spec(self) -> ctypes.Array[ctypes.c_int64]:
        """What `dc_call` compares arrays with: offsets, flags, counts, then (dtype object, rank, sizes) per array."""
        words: list[int] = [0] * 9
        if self._layout is not None:
            at = self._layout
            words = [at.type, at.data, at.ndim, at.shape, at.descr, at.flags]
            words += [id(np.ndarray), C_CONTIGUOUS_ALIGNED, WRITEABLE]
        words += [len(self._metas), len(self.entry.outputs)]
        for meta in (*self._metas, *self.entry.outputs):
            words += [id(meta.dtype.numpy), meta.ndim, *meta.shape]
        return (ctypes.c_int64 * len(words))(*words)

    def _call_by_address(
        self, inputs: Sequence[Array], results: list[Array], dispatch: Dispatch | None, arena: int
    ) -> list[Array]:
        """The careful way, for arrays that `dc_call` turned down: strided, of another type, or plainly wrong."""
        given = [
            _fit(a, m, f"input {k} of {self.entry.symbol}") for k, (a, m) in enumerate(zip(inputs, self.entry.inputs))
        ]
        for k, (out, meta) in enumerate(zip(results, self.entry.outputs)):
            _check_like(out, meta, f"the place for output {k} of {self.entry.symbol}")
        places = [out if _is_writable_in_place(out) else np.empty(out.shape, out.dtype) for out in results]
        if dispatch is not None:
            self._check_events(inputs, given, results, places)
        addresses = [array.ctypes.data for array in (*given, *self.constants, *places)]
        entry = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)(self._function)
        args = (ctypes.c_void_p * (len(addresses) + 1))(*addresses)
        events = None if dispatch is None else dispatch.address
        code = entry(ctypes.addressof(args), arena, self._routines, events)
        if code > 0:
            self._fail(code, dispatch, inputs)
        for out, place in zip(results, places):
            if out is not place:
                np.copyto(out, place)
        return results

    def _check_events(
        self, inputs: Sequence[Array], given: Sequence[Array], results: Sequence[Array], places: Sequence[Array]
    ) -> None:
        """What events are about must be where the caller has it: a copy would be made too early, or too late."""
        copied = [f"input {k}" for k in self.entry.awaited if given[k] is not inputs[k]]
        copied += [f"output {k}" for k in self.entry.announced if places[k] is not results[k]]
        if copied:
            raise BackendError(
                f"{', '.join(copied)} of {self.entry.symbol} would be copied, but an event is about it",
                expected="C-contiguous, aligned NumPy arrays",
            )

    def _fail(self, code: int, dispatch: Dispatch | None, inputs: Sequence[Array]) -> None:
        if code == FAILED and dispatch is not None:
            dispatch.failed()
            return  # leaving the dispatch raises
        if code == RAISED:
            raise self._callbacks.take_error()
        if code == LIBRARY_FAILED:
            raise BackendError("oneDNN failed", where=f"compiled graph {self.entry.symbol}")
        error = failed_check(self.entry.messages[code - 1], f"compiled graph {self.entry.symbol}")
        raise self.explain(inputs, error)


def _check_like(array: Array, meta: TensorMeta, what: str) -> None:
    if array.dtype != meta.dtype.numpy:
        raise DTypeError(
            f"{what} has another dtype than the graph was compiled for", expected=str(meta), got=str(array.dtype)
        )
    if array.shape != meta.shape:
        raise ShapeError(
            f"{what} has another shape than the graph was compiled for", expected=str(meta), got=str(array.shape)
        )


def _fit(array: Array, meta: TensorMeta, what: str) -> Array:
    """`array` as a C-contiguous, aligned array of `meta`; itself if it is one."""
    array = np.asarray(array)
    _check_like(array, meta, what)
    return np.require(array, requirements=["C", "A"])


def _is_writable_in_place(array: Array) -> bool:
    if not array.flags.writeable:
        raise BackendError("the place given for an output is read-only")
    return bool(array.flags.c_contiguous and array.flags.aligned)
