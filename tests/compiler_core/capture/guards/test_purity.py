"""What is written in C is called under capture if it is known to only compute: clocks, chance and the system are not.

`CALLS` are calls that give something else every time; they do so compiled. Then every C function, class and method of
the modules and classes that the tables are about is either in a table or in a list of what is left out here, so that
what a new version of Python or NumPy brings is looked at by somebody.
"""

from __future__ import annotations

import array
import collections
import ctypes
import datetime
import decimal
import functools
import importlib
import itertools
import math
import operator
import os
import random
import re
import secrets
import struct
import sys
import tempfile
import threading
import time
import types
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.capture.tracing.rules import pure_table
from compiler_core.capture.tracing.rules.builtin_rules import RULES
from compiler_core.capture.tracing.rules.numpy_rules import _PURE as OF_NUMPY
from compiler_core.capture.tracing.rules.pure import is_pure, is_pure_class, is_pure_method
from compiler_core.capture.tracing.rules.pure_table import words

now = time.time_ns
generator, legacy, seeded = np.random.default_rng(0), np.random.RandomState(0), random.Random(3)


class Timer:
    """Keeps a clock in three ways."""

    clock = staticmethod(time.perf_counter)

    def __init__(self) -> None:
        self.own = time.perf_counter
        self.began = self.own()

    def spent(self, clock: Callable[[], float] = time.perf_counter) -> tuple[float, ...]:
        return self.own() - self.began, self.clock() - self.began, clock() - self.began


timer = Timer()


class Moment(datetime.datetime):
    """A class of the program's, of a class written in C."""


def seeded_anew() -> float:
    made = random.Random(5)
    made.seed()
    return made.random()


# calls that give another value each time
CALLS: dict[str, Callable[[], Any]] = {
    "datetime.now": lambda: datetime.datetime.now(),
    "datetime.now in a zone": lambda: datetime.datetime.now(datetime.UTC),
    "datetime.utcnow": lambda: datetime.datetime.utcnow(),
    "today": lambda: datetime.datetime.today(),
    "a class derived from datetime": lambda: Moment.now(),
    "a time span": lambda: datetime.datetime.now() - datetime.datetime(2020, 1, 1),
    "fromtimestamp": lambda: datetime.datetime.fromtimestamp(time.time()),
    "an alias": lambda: now(),
    "a timer": lambda: timer.spent(),
    "clock_gettime": lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC),
    "operator.call": lambda: operator.call(time.perf_counter_ns),
    "map": lambda: list(map(time.clock_gettime_ns, [time.CLOCK_MONOTONIC])),
    "partial": lambda: functools.partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)(),
    "iter": lambda: next(iter(time.perf_counter_ns, None)),
    "starmap": lambda: list(itertools.starmap(time.perf_counter_ns, [()])),
    "a default": lambda: collections.defaultdict(time.perf_counter_ns)["a"],
    "SystemRandom": lambda: random.SystemRandom().random(),
    "Random()": lambda: random.Random().random(),
    "Random(None)": lambda: random.Random(None).random(),
    "seed()": seeded_anew,
    "random.random": lambda: random.random(),
    "a generator from outside": lambda: seeded.gauss(0, 1),
    "map of random": lambda: list(map(seeded.uniform, [0.0], [1.0])),
    "secrets": lambda: (secrets.token_hex(8), secrets.randbelow(10**15)),
    "uuid4": lambda: uuid.uuid4(),
    "uuid1": lambda: uuid.uuid1(),
    "urandom": lambda: os.urandom(8),
    "Generator": lambda: generator.normal(),
    "default_rng": lambda: np.random.default_rng().normal(),
    "Generator(PCG64())": lambda: np.random.Generator(np.random.PCG64()).random(),
    "RandomState": lambda: legacy.rand(),
    "np.random.rand": lambda: np.random.rand(),
    "a name for a file": lambda: tempfile.mktemp(),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CALLS)
def test_a_value_of_the_moment_is_of_the_call(name: str) -> None:
    call = CALLS[name]
    compiled = dc.compile(lambda x: (x + 1, call()), backend="eager")
    found = [compiled(dc.ones(2))[1] for _ in range(4)]
    assert len(set(map(repr, found))) == 4, found


def test_a_seed_makes_a_generator_a_constant() -> None:
    compiled = dc.compile(lambda x: x * random.Random(7).random(), backend="eager", fullgraph=True)
    for _ in range(3):
        assert compiled(dc.ones(1)).item() == pytest.approx(random.Random(7).random())


@pytest.mark.parametrize("name", ["now", "today"])
def test_dates_of_numpys_are_of_the_call(name: str) -> None:
    compiled = dc.compile(lambda x: (x + 1, np.datetime64(name)), backend="eager")
    compiled(dc.ones(1))
    assert [why.reason for why in compiled.explain().breaks] == ["np.datetime64() may do more than compute"]
    plain = dc.compile(lambda x: (x + 1, np.datetime64("2020-01-01")), backend="eager", fullgraph=True)
    assert plain(dc.ones(1))[1] == np.datetime64("2020-01-01")


# -- what C code reads of the program's objects

state = {"n": 0}
numbers, text, values = array.array("d", [1.0, 2.0]), bytearray(b"ab"), (ctypes.c_double * 2)(1.0, 2.0)
matches = [re.match("(a+)b", "aab")]
vectorized, from_python = np.vectorize(lambda x: state["n"]), np.frompyfunc(lambda x: state["n"], 1, 1)


class Number:
    def __float__(self) -> float:
        return float(state["n"])

    def __index__(self) -> int:
        return state["n"]

    def __str__(self) -> str:
        return str(state["n"])

    def __call__(self, *args: Any) -> str:
        return str(state["n"])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([state["n"]])

    __repr__ = __str__


class Zone(datetime.tzinfo):
    def utcoffset(self, moment: Any) -> datetime.timedelta:
        return datetime.timedelta(minutes=state["n"])

    def dst(self, moment: Any) -> datetime.timedelta:
        return datetime.timedelta(0)


number, moment = Number(), datetime.datetime(2020, 1, 1, tzinfo=Zone())
packed = struct.Struct("d")


def grown(step: int) -> None:
    state["n"] = step
    numbers[0] = values[0] = step
    text[0] = 64 + step
    matches[0] = re.match("(a+)b", "a" * step + "b")
    if step == 4:
        numbers.append(1.0)


READS: dict[str, Callable[[], Any]] = {
    "an array's items": lambda: ([v + 0 for v in numbers], list(numbers), tuple(numbers), sum(numbers), max(numbers)),
    "an array among others": lambda: (list(zip(numbers, "ab")), list(itertools.islice(numbers, 1)), [*numbers]),
    "an array's length": lambda: (len(numbers), 3.0 in numbers, numbers == numbers, (numbers + numbers)[0]),
    "an array unpacked": lambda: (lambda first, *rest: first)(*numbers),
    "a bytearray": lambda: (list(text), [v + 0 for v in text], 66 in text, text[0], bytes(text + b"x"), text.decode()),
    "what ctypes holds": lambda: ([v + 0 for v in values], list(values), values[0], len(values)),
    "a match": lambda: (matches[0].group(1), matches[0].span(), matches[0][1]),  # type: ignore[union-attr]
    "a function of NumPy's made of Python": lambda: (vectorized(3).tolist(), from_python(3)),
    "an object as a number": lambda: (math.sqrt(number), struct.pack("d", number), packed.pack(number), hex(number)),
    "an object as a bound": lambda: (list(range(number)), operator.index(number), [0] * number),
    "an object as text": lambda: (
        format(number),
        ascii(number),
        format([number]),
        "%s %d" % (number, number),  # noqa: UP031
        f"{[number]}",
    ),
    "an object that is called": lambda: (
        operator.call(number),
        re.sub("a", number, "bab"),
        functools.partial(number)(),
    ),
    "a partial that is called": lambda: re.compile("a").sub(functools.partial(lambda m: str(state["n"])), "bab"),
    "an object as an array": lambda: np.asarray(number).tolist(),
    "a zone of the program's": lambda: (
        moment.isoformat(),
        moment == datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
    ),
}


@pytest.mark.parametrize("name", READS)
def test_what_c_code_reads_is_as_it_is_then(name: str) -> None:
    read = READS[name]
    compiled = dc.compile(lambda x: (x + 1, read()), backend="eager")
    for step in range(1, 6):
        grown(step)
        assert repr(compiled(dc.ones(2))[1]) == repr(read()), step


def test_arithmetic_of_decimal_numbers_is_the_contexts() -> None:
    compiled = dc.compile(lambda x: (x + 1, decimal.Decimal(1) / 3), backend="eager")
    for digits in (3, 5, 7):
        with decimal.localcontext() as context:
            context.prec = digits
            assert compiled(dc.ones(1))[1] == decimal.Decimal(1) / 3


def test_an_error_that_numpy_shall_raise_is_raised() -> None:
    def function(x: Any) -> Any:
        with np.errstate(divide="raise"):
            return x + float(np.float64(1.0) / np.float64(0.0))

    compiled = dc.compile(function, backend="eager")
    for _ in range(2):
        with pytest.raises(FloatingPointError):
            compiled(dc.ones(1))


# -- all there is

SYSTEM = words(
    "time os posix io _io random _random secrets uuid _socket select signal _thread threading gc sys _weakref "
    "_locale resource pwd grp fcntl mmap array _ctypes _pickle marshal _hashlib _md5 _sha1 bz2 _bz2 lzma "
    "_lzma _sqlite3 ssl _ssl faulthandler atexit _imp _tracemalloc _asyncio _queue _csv _elementtree pyexpat "
    "termios syslog _contextvars _posixsubprocess _multiprocessing _posixshmem _codecs _warnings _symtable "
    "_opcode _uuid _zoneinfo _interpreters numpy.random numpy.random.mtrand numpy.random._generator "
    "numpy.random.bit_generator numpy.random._pcg64"
)


ELSEWHERE = words("builtins math _operator itertools _collections collections functools types _bisect")


def c_functions(module: Any) -> dict[str, Any]:
    return {n: v for n, v in vars(module).items() if isinstance(v, types.BuiltinFunctionType)}


def c_classes(module: Any) -> dict[str, Any]:
    names = {n: v for n, v in vars(module).items() if isinstance(v, type) and not issubclass(v, BaseException)}
    return {n: v for n, v in names.items() if n != "__loader__" and not isinstance(v.__init__, types.FunctionType)}


@pytest.mark.parametrize("name", sorted(SYSTEM))
def test_nothing_that_speaks_to_the_system_only_computes(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError:
        pytest.skip("not in this Python")
    own = {n: function for n, function in c_functions(module).items() if function.__module__ not in ELSEWHERE}
    classes = {n: cls for n, cls in c_classes(module).items() if cls.__module__ not in ELSEWHERE}
    assert {n for n, function in own.items() if is_pure(function)} == set()
    assert {n for n, cls in classes.items() if is_pure_class(cls)} == set()
    assert {n for n, cls in classes.items() if cls in pure_table.METHODS} == set()


LEFT_OUT = {
    "builtins": "__build_class__ __import__ breakpoint compile dir input aiter anext print open",
    "_operator": "_compare_digest length_hint",
    "itertools": "_tee_dataobject",
    "_functools": "cmp_to_key _lru_cache_wrapper",
    "_collections": "_deque_iterator _deque_reverse_iterator _tuplegetter",
    "_bisect": "insort_right insort_left",
    "_struct": "_clearcache pack_into Struct",
    "_json": "make_scanner make_encoder",
    "zlib": "compressobj decompressobj _ZlibDecompressor",
    "unicodedata": "UCD",
    "_datetime": "tzinfo",
    "_decimal": "getcontext setcontext localcontext Context DecimalTuple",
    "_abc": "get_cache_token _abc_init _reset_registry _reset_caches _get_dump _abc_register _abc_instancecheck "
    "_abc_subclasscheck",
    **dict.fromkeys(("math", "cmath", "_heapq", "_sre", "_statistics", "_string", "binascii"), ""),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_every_function_and_class_was_looked_at(name: str) -> None:
    ruled = {id(function) for function in RULES}
    module = importlib.import_module(name)
    there = {**c_functions(module), **c_classes(module)}
    left = {n for n, thing in there.items() if id(thing) not in ruled and not is_pure(thing)}
    assert left <= set(LEFT_OUT[name].split())


COMMON = words("__new__ __setstate__ __class_getitem__ __sizeof__")
METHODS_LEFT_OUT: dict[type, str] = {
    bytearray: "__alloc__ __release_buffer__ resize",
    memoryview: "release __enter__ __exit__ __release_buffer__ _from_flags",
    property: "__set_name__",
    types.CodeType: "_varname_from_oparg __replace__",
    types.GenericAlias: "__mro_entries__ __instancecheck__ __subclasscheck__ __dir__",
    re.Pattern: "scanner",
    struct.Struct: "pack_into",
    datetime.date: "fromtimestamp today strftime strptime __replace__",
    datetime.datetime: "now utcnow fromtimestamp strptime timestamp astimezone strftime __replace__",
    datetime.time: "strftime strptime __replace__",
    datetime.timezone: "__getinitargs__",
    decimal.Decimal: "exp ln log10 next_minus next_plus normalize to_integral to_integral_exact to_integral_value sqrt "
    "compare compare_signal max max_mag min min_mag next_toward quantize remainder_near fma is_normal is_subnormal "
    "logb logical_invert number_class to_eng_string logical_and logical_or logical_xor rotate scaleb shift from_number",
    np.generic: "tofile byteswap getfield setfield resize __array__ __array_wrap__ dumps dump fill put choose sort "
    "setflags __array_namespace__ to_device",
}
C_METHODS = (types.MethodDescriptorType, types.ClassMethodDescriptorType, types.BuiltinFunctionType, staticmethod)


@pytest.mark.parametrize("cls", pure_table.METHODS, ids=lambda cls: cls.__name__)
def test_every_method_was_looked_at(cls: type) -> None:
    there = {name for name, method in vars(cls).items() if isinstance(method, C_METHODS)}
    bases = [base for base in cls.__mro__ if base in pure_table.METHODS]
    listed = {name for base in bases for name in pure_table.METHODS[base].split()}
    listed |= words(pure_table.OF_CLASSES.get(cls, ""))
    left = there - listed - pure_table.SLOTS - COMMON
    assert left <= set(METHODS_LEFT_OUT.get(cls, "").split())


@pytest.mark.parametrize("cls", METHODS_LEFT_OUT, ids=lambda cls: cls.__name__)
def test_no_method_that_is_left_out_only_computes(cls: type) -> None:
    samples = {
        bytearray: bytearray(),
        memoryview: memoryview(b""),
        property: property(),
        types.CodeType: (lambda: 0).__code__,
        types.GenericAlias: list[int],
        re.Pattern: re.compile("a"),
        struct.Struct: packed,
        datetime.date: datetime.date(2020, 1, 1),
        datetime.datetime: datetime.datetime(2020, 1, 1),
        datetime.time: datetime.time(1),
        datetime.timezone: datetime.UTC,
        decimal.Decimal: decimal.Decimal(1),
        np.generic: np.float32(1),
    }
    left = [*METHODS_LEFT_OUT[cls].split(), "__setstate__", "__sizeof__"]
    assert [name for name in left if is_pure_method(samples[cls], name)] == []
    of_class = [getattr(cls, name, None) for name in left]
    assert [m for m in of_class if isinstance(m, types.BuiltinFunctionType) and is_pure(m)] == []


NUMPY_LEFT_OUT = words(
    "apply_along_axis apply_over_axes array2string array_repr array_str asmatrix bmat from_dlpack fromfile "
    "fromfunction frompyfunc fromregex genfromtxt get_include get_printoptions getbufsize geterr geterrcall "
    "info load loadtxt mask_indices nested_iters piecewise printoptions save savetxt savez savez_compressed "
    "set_printoptions setbufsize seterr seterrcall show_config show_runtime as_strided in1d trapz test disp "
    "source lookfor deprecate byte_bounds"
)


@pytest.mark.parametrize("name", pure_table.NUMPY)
def test_every_function_of_numpys_was_looked_at(name: str) -> None:
    module = importlib.import_module(name)
    kinds = (np.ufunc, type(np.sum), types.FunctionType, types.BuiltinFunctionType)
    there = {n: v for n, v in vars(module).items() if n[0] != "_" and isinstance(v, kinds)}
    of_its_own = {n: v for n, v in there.items() if (getattr(v, "__module__", None) or "numpy").startswith("numpy")}
    public = {n: v for n, v in of_its_own.items() if n in getattr(module, "__all__", there)}
    assert {n for n, function in public.items() if function not in OF_NUMPY} <= NUMPY_LEFT_OUT


def test_what_is_not_known_is_named() -> None:
    for call, name in (
        (lambda: threading.get_ident(), "get_ident"),
        (lambda: sys.getrefcount(state), "getrefcount"),
        (lambda: generator.normal(), "normal"),
        (lambda: numbers.tobytes(), "array.tobytes"),
        (lambda: threading.Lock(), "allocate_lock"),
        (lambda: np.savetxt, ""),
    ):
        compiled = dc.compile(lambda x, call=call: (x + 1, call()), backend="eager")
        compiled(dc.ones(1))
        reasons = [why.reason for why in compiled.explain().breaks]
        assert any(name in reason for reason in reasons) if name else not reasons, reasons
