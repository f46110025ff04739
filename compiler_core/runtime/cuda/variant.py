"""What a noted call is to native code: the numbers and objects of one variant (again.h), in the order it reads them.

In: a note, where operands lie, the result. Out: `variant_of`: (numbers, objects). Pointers become words, each with
whose memory it points into: an operand's, a block's that is allocated anew, or the arena's. Blocks that no result lies
in are one. All else of the arguments is kept as it was. Raises LookupError for memory that is not known, TypeError for
results that are no arrays, or tuples and lists of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from compiler_core import cuda
from compiler_core.runtime.cuda import context, driver, replay

Array = Any
_UNIT = 512  # bytes, of which pieces of a block are multiples
_WORD = 8  # bytes
_MOST_ARGUMENTS = 24
_OPERAND, _BLOCK, _ARENA, _NUMBER = range(4)  # sources, as again.h has them
_OTHER, _LAID, _COUNT = range(3)  # kinds of operands
_NONE, _SAME, _ARRAY, _TUPLE, _LIST = range(5)  # forms of a result
Place = tuple[int, int, int]  # source, its number, an offset there


def variant_of(
    note: replay.Note, spans: Sequence[tuple[int, int]], operands: Sequence[Any], result: Any
) -> tuple[list[int], tuple[Any, ...]]:
    """The numbers and objects of the variant."""
    return _Maker(note, spans, operands, result).made()


def _failed(names: Sequence[str], number: int, code: int) -> NoReturn:
    raise driver.failure(names[number], code)


class _Maker:
    def __init__(
        self, note: replay.Note, spans: Sequence[tuple[int, int]], operands: Sequence[Any], result: Any
    ) -> None:
        self.calls, self.operands, self.blocks = note.calls, operands, len(note.made)
        self.results: list[Array] = []
        self.pairs = replay.pairs_of(spans)
        self.form = list(self._parted(result))
        blocks = [(x.data.ptr, x.data.ptr + max(x.nbytes, 1)) for x in note.made]
        own = [number for number, (a, b) in enumerate(blocks) if any(a <= x.data.ptr < b for x in self.results)]
        self.sizes = [note.made[number].nbytes for number in own]
        self.ranges: list[tuple[int, int, Place, int]] = []
        self.ranges += [(a, b, (_OPERAND, number, 0), 0) for number, (a, b) in enumerate(spans)]
        self.ranges += [(*blocks[one], (_BLOCK, place, 0), one + 1) for place, one in enumerate(own)]
        behind = 0
        for number, (a, b) in enumerate(blocks):
            if number not in own:
                self.ranges.append((a, b, (_BLOCK, len(own), behind), number + 1))
                behind += -(-(b - a) // _UNIT) * _UNIT
        if behind:
            self.sizes.append(behind)
        self.sources: list[Place] = []
        self.handles: dict[int, int] = {}  # by id: their words, behind those that point to memory
        self.held: list[Any] = []
        self.words: Any = None

    def _parted(self, result: Any) -> Any:
        """The parts of a result before the whole: (form, count), and its arrays."""
        if result is None:
            yield _NONE, 0
        elif type(result) is cuda.array_types[0]:
            self.results.append(result)
            yield _ARRAY, len(self.results) - 1
        elif type(result) in (list, tuple):
            for part in result:
                yield from self._parted(part)
            yield _TUPLE if type(result) is tuple else _LIST, len(result)
        else:
            raise TypeError

    def _where(self, pointer: int, blocks: int) -> Place:
        """Whose memory it points into, of the operands' and the first `blocks` that were asked for: what CuPy made and
        let go of may have had the address of a later one."""
        for start, end, (source, number, offset), asked in self.ranges:
            if asked <= blocks and start <= pointer < end:
                return source, number, offset + pointer - start
        raise LookupError

    def made(self) -> tuple[list[int], tuple[Any, ...]]:
        for call in self.calls:
            for arg in call.args:
                self._see(arg, call.blocks)
        count = len(self.sources)
        self.handles = {one: count + place for place, one in enumerate(self.handles)}
        self.words = (ctypes.c_uint64 * max(count + len(self.handles), 1))()
        self.held.append(self.words)
        self.at = iter(range(count))
        calls = [number for call in self.calls for number in self._call(call)]
        module, names = cuda.module(), [call.name for call in self.calls]
        number = cuda.current() if cuda.lone.array is None else -1
        numbers = [number, module.cuda.get_current_stream().ptr, ctypes.addressof(self.words)]
        objects = [cuda.array_types[0], replay.Noting.settings, cuda.precision.tf32, self.held]
        objects += [module.cuda.alloc, module.cuda.get_current_stream, cuda.current, partial(_failed, names)]
        objects.append(context.eager_blas_handle if any(name.startswith("cublas") for name in names) else None)
        objects.append(context.eager_workspace if any(source == _ARENA for source, *_ in self.sources) else None)
        numbers.append(len(self.operands))
        pointers: list[int] = []
        for x in self.operands:
            self._add_operand(x, pointers, numbers, objects)
        numbers += [len(self.pairs), *[number for pair in self.pairs for number in pair]]
        numbers += [len(self.sizes), len(self.sources), *[part for place in self.sources for part in place]]
        objects += self.sizes
        numbers += [len(self.calls), *calls, len(self.form)]
        for form, count in self.form:
            self._add_part(form, count, numbers, objects)
        return numbers, tuple(objects)

    def _see(self, arg: Any, blocks: int) -> None:
        """Note of whose memory a pointer is."""
        kind = type(arg)
        if kind is replay.Workspace:
            self.sources.append((_ARENA, 0, 0))
        elif kind is replay.Number:
            self.sources.append((_NUMBER, [*map(id, self.operands)].index(id(arg)), 0))
        elif kind is replay.Written:
            self.handles.setdefault(id(arg.handle), 0)
            self.held.append(arg.handle)
        elif kind is replay.Table:
            self.sources += [self._where(value, blocks) for value in arg.values]
        elif kind is replay.Address:
            self.sources.append(self._where(arg.value, blocks))
        elif kind is cuda.array_types[0]:
            self.sources.append(self._where(arg.data.ptr, blocks))

    # ---- calls

    def _call(self, call: replay.Call) -> list[int]:
        """Its function, number and what undoes it, its arguments, and which of them are words."""
        if call.what is None:
            function, args = driver.function(call.name), list(call.args)
        else:
            function, args = replay.launcher(), self._launched(call.what, call.args)
        self.held.append(function)
        if len(args) > _MOST_ARGUMENTS:
            raise LookupError
        told, words = [], list[int]()
        for place, arg in enumerate(args):
            kind = type(arg)
            if kind is replay.Handle:
                words += (place, self.handles[id(arg)])
            elif kind is replay.Workspace or (kind is replay.Address and not arg.by_reference):
                words += (place, next(self.at))
            told.append(0 if words[-2:-1] == [place] else self._number(arg))
        number = self.calls.index(call)
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        return [address, number, call.undo, len(told), *told, len(words) // 2, *words]

    def _number(self, arg: Any) -> int:
        """An argument as a whole number."""
        kind = type(arg)
        if kind is replay.Written:
            return self._word(self.handles[id(arg.handle)])
        if kind is replay.Address:
            return self._word(next(self.at))
        if kind is replay.Table:
            first, *_ = [next(self.at) for _ in arg.values]
            return self._word(first)
        if arg is None or isinstance(arg, int):
            return arg or 0
        self.held.append(arg)
        if hasattr(arg, "value"):
            return int(arg.value or 0)
        return ctypes.cast(arg, ctypes.c_void_p).value or 0  # what it refers to

    def _word(self, number: int) -> int:
        return ctypes.addressof(self.words) + number * _WORD

    def _launched(self, what: tuple[Any, tuple[int, ...], tuple[int, ...]], args: Any) -> list[Any]:
        """The driver's arguments of a kernel, its grid and block."""
        function, grid, block = what
        at = []
        for arg in args:
            if type(arg) in (replay.Address, replay.Number, cuda.array_types[0]):
                at.append(self._word(next(self.at)))
                continue
            constant = np.array(np.uint64(0) if arg is None else arg)
            self.held.append(constant)
            at.append(constant.ctypes.data)
        sizes = (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3], 0)
        pointers = (ctypes.c_void_p * len(at))(*at)
        stream = cuda.module().cuda.get_current_stream().ptr
        return [function.kernel.ptr, *map(int, sizes), stream, ctypes.byref(pointers), None]

    # ---- operands and results

    def _add_operand(self, x: Any, pointers: list[int], numbers: list[int], objects: list[Any]) -> None:
        kind: Any = cuda.array_types[0]
        if type(x) is not kind:
            is_number = type(x) is replay.Number
            numbers.append(_COUNT if is_number else _OTHER)
            objects.append(replay.Number if is_number else x)
            return
        numbers += (_LAID, replay.start_of(x.data.ptr, pointers))
        pointers.append(x.data.ptr)
        objects += (x.dtype, x.shape, x.strides)

    def _add_part(self, form: int, count: int, numbers: list[int], objects: list[Any]) -> None:
        if form != _ARRAY:
            numbers += (form, count, 0, 0, 0)
            return
        x = self.results[count]
        for place, operand in enumerate(self.operands):
            if operand is x:
                numbers += (_SAME, 0, _OPERAND, place, 0)
                return
        numbers += (_ARRAY, 0, *self._where(x.data.ptr, self.blocks))
        objects += (x.shape, x.dtype, None if x.flags.c_contiguous else x.strides)
