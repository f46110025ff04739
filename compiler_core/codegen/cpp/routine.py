"""Routine calls of a program as C++: a C call that the routine writes itself, or a call back into NumPy.

In: a Program. Out: the lines of each `RoutineCall`, and `library_of`: the symbols, callbacks and planned calls whose
addresses make the table `lib` that the entry function is given, in this order, each in order of first use. Planned
calls share the memory behind the arena as their scratch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from compiler_core.codegen.cpp.shared_call import SharedCalls
from compiler_core.graph.print import print_attrs
from compiler_core.loop_ir.ir import Program, RoutineCall, Slot, View
from compiler_core.ops.routine import CArray, CCall, Native
from compiler_core.runtime.callback import LIBRARY_FAILED, Callback
from compiler_core.runtime.lasting_memory import scratch_offset


def slot_text(slot: Slot) -> str:
    """The address of a slot."""
    return f"{slot.buffer} + {slot.offset}" if slot.offset else slot.buffer


def routine_calls(program: Program) -> list[RoutineCall]:
    """The routine calls of `program`, in order."""
    return [step for step in program.steps if isinstance(step, RoutineCall)]


def native_of(call: RoutineCall) -> Native | None:
    """The C call of `call`; None: it is a call back."""
    dtype = (call.operands[0] if call.operands else call.result).layout.dtype
    return call.routine.native_for(dtype, dict(call.attrs))


def _may_call_back(native: Native | None) -> bool:
    return native is None or native.may_fail


def symbols_of(program: Program) -> tuple[str, ...]:
    """The symbols that `program` needs, once each."""
    needed: dict[str, None] = {}
    for call in routine_calls(program):
        if native := native_of(call):
            layouts = tuple(view.layout for view in call.operands)
            needed |= dict.fromkeys(native.symbols(layouts, dict(call.attrs)))
    return tuple(needed)


def library_of(program: Program) -> tuple[tuple[str, ...], tuple[Callback, ...], tuple[Callback, ...]]:
    """The symbols, the calls back, and the planned calls of `program`."""
    calls = routine_calls(program)
    backs = [call for call in calls if _may_call_back(native_of(call))]
    planned = [call for call in calls if (native := native_of(call)) and native.planned]
    return symbols_of(program), tuple(map(_callback, backs)), tuple(map(_callback, planned))


def _callback(call: RoutineCall) -> Callback:
    return Callback(
        call.routine.name, print_attrs(dict(call.attrs)), tuple(view.layout for view in (*call.operands, call.result))
    )


def scratch_nbytes(program: Program) -> int:
    """The scratch memory that the most demanding call of `program` declares; planned calls ask for theirs later."""
    return max((nbytes for nbytes, _ in _scratch(program)), default=0)


def scratch_share(program: Program) -> int:
    """The most that one thread of such a call writes of it."""
    return max((-(-nbytes // max(places, 1)) for nbytes, places in _scratch(program)), default=0)


def _scratch(program: Program) -> Iterator[tuple[int, int]]:
    """Of each call, its scratch memory, and for how many threads that is."""
    for call in routine_calls(program):
        if native := native_of(call):
            layouts, attrs = tuple(view.layout for view in call.operands), dict(call.attrs)
            yield native.scratch(layouts, attrs), native.places(layouts, attrs)


def natives_of(programs: Sequence[Program]) -> list[Native]:
    """The C calls of `programs`, once each, in order."""
    natives = (native_of(call) for program in programs for call in routine_calls(program))
    return list(dict.fromkeys(native for native in natives if native is not None))


def routine_helpers(natives: Sequence[Native]) -> str:
    """The C++ that C calls need, once each."""
    return "".join(dict.fromkeys(native.helper for native in natives))


class RoutinePrinter:
    """Prints the routine calls of one program, which must be asked for in order. shared: where equal calls meet.

    writes: whether code of a routine stood among the lines so far, and not calls alone.
    """

    def __init__(self, program: Program, shared: SharedCalls | None = None) -> None:
        self._shared, self.writes = shared, False
        self._dtypes = {buffer.name: buffer.dtype for buffer in program.buffers}
        symbols, backs, _ = library_of(program)
        self._places = {name: place for place, name in enumerate(symbols)}
        self._callbacks = count(len(symbols))
        self._plans = count(len(symbols) + len(backs))
        self._scratch = f"arena + {scratch_offset(int(program.arena_nbytes))}"

    def lines(self, step: RoutineCall) -> Iterator[str]:
        """The lines that do `step`."""
        native = native_of(step)
        back = tuple(call_back(step, next(self._callbacks))) if _may_call_back(native) else ()
        if native is None:
            yield from back
            return
        plan = f"lib[{next(self._plans)}]" if native.planned else ""
        views = (*step.operands, step.result)
        arrays = tuple(map(c_array, views))

        def write(arrays: Sequence[CArray]) -> Iterator[str]:
            *operands, result = arrays
            attrs, failed = dict(step.attrs), str(LIBRARY_FAILED)
            return native.emit(CCall(tuple(operands), result, attrs, self._symbol, plan, self._scratch, failed, back))

        typed = all(self._dtypes[view.slot.buffer] is view.layout.dtype for view in views)
        if self._shared is None or plan or back or not typed:
            self.writes = True
            yield from write(arrays)
        else:
            yield self._shared.call(step, [array.address for array in arrays], write)

    def _symbol(self, name: str) -> str:
        return f"lib[{self._places[name]}]"


def call_back(step: RoutineCall, place: int) -> Iterator[str]:
    """Lines that call a routine's definition, number `place` of `lib`, back in Python."""
    addresses = ", ".join(slot_text(view.slot) for view in (*step.operands, step.result))
    yield f"  const void* const dc_arrays_{place}[] = {{{addresses}}};"
    callback = f"((int32_t (*)(const void* const*))lib[{place}])"
    yield f"  if (const int32_t status = {callback}(dc_arrays_{place})) return status;"


def c_array(view: View) -> CArray:
    return CArray(slot_text(view.slot), view.layout)
