"""What only computes, of what Python and NumPy have written in C: same arguments, same result, and nothing changes.

In: nothing. Out: tables. `FUNCTIONS`: functions, `METHODS`: methods of a class's instances, `OF_CLASSES`: those of a
class itself, `MADE`: classes whose making only computes, `NUMPY`: NumPy's functions that have no rule of their own.
What is not here is called between two graphs, as it is: so what nobody has looked at is right, and named. Left out on
purpose: what reads clocks, chance, the system, the locale or the time zone, what looks at or changes anything but its
arguments, and arithmetic of decimal numbers, which a context of the thread rules.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import functools
import importlib
import itertools
import operator
import re
import struct
import types
from typing import Any

import numpy as np


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def named(table: dict[str, str]) -> frozenset[Any]:
    """The functions that a table names, of those that this version has."""
    modules = {name: importlib.import_module(name) for name in table}
    found = (getattr(modules[name], part, None) for name, parts in table.items() for part in parts.split())
    return frozenset(function for function in found if function is not None)


FUNCTIONS = {
    "builtins": "abs all any bin callable chr divmod hash hex isinstance issubclass iter len max min oct ord pow round "
    "sorted sum",
    "math": "acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist erf erfc exp exp2 "
    "expm1 fabs factorial floor fma fmod frexp fsum gamma gcd hypot isclose isfinite isinf isnan isqrt lcm ldexp "
    "lgamma log log10 log1p log2 modf nextafter perm pow prod radians remainder sin sinh sqrt sumprod tan tanh trunc "
    "ulp",
    "cmath": "acos acosh asin asinh atan atanh cos cosh exp isclose isfinite isinf isnan log log10 phase polar rect "
    "sin sinh sqrt tan tanh",
    "operator": "concat countOf index indexOf not_ _compare_digest",
    "itertools": "tee",
    "_bisect": "bisect_left bisect_right",
    "_sre": "ascii_iscased ascii_tolower compile getcodesize template unicode_iscased unicode_tolower",
    "_struct": "calcsize iter_unpack pack unpack unpack_from",
    "_json": "encode_basestring encode_basestring_ascii scanstring",
    "_statistics": "_normal_dist_inv_cdf",
    "_string": "formatter_field_name_split formatter_parser",
    "_typing": "_idfunc",
    "binascii": "a2b_base64 a2b_hex a2b_qp a2b_uu b2a_base64 b2a_hex b2a_qp b2a_uu crc32 crc_hqx hexlify unhexlify",
    "zlib": "adler32 compress crc32 decompress",
    "unicodedata": "bidirectional category combining decimal decomposition digit east_asian_width is_normalized lookup "
    "mirrored name normalize numeric",
}
SLOTS = words(
    "__abs__ __add__ __and__ __bool__ __bytes__ __ceil__ __complex__ __contains__ __divmod__ __eq__ __float__ "
    "__floor__ __floordiv__ __format__ __ge__ __getitem__ __getnewargs__ __getnewargs_ex__ __getstate__ "
    "__gt__ __hash__ __index__ __int__ __invert__ __iter__ __le__ __len__ __lshift__ __lt__ __mod__ __mul__ "
    "__ne__ __neg__ __or__ __pos__ __pow__ __radd__ __rand__ __rdivmod__ __reduce__ __reduce_ex__ __repr__ "
    "__rfloordiv__ __rlshift__ __rmod__ __rmul__ __ror__ __round__ __rpow__ __rrshift__ __rshift__ __rsub__ "
    "__rtruediv__ __rxor__ __str__ __sub__ __truediv__ __trunc__ __xor__ __next__ __length_hint__ "
    "__reversed__ __copy__ __deepcopy__"
)
_TEXT = (
    "capitalize center count endswith expandtabs find index isalnum isalpha isascii isdigit islower isspace istitle "
    "isupper join ljust lower lstrip partition replace removeprefix removesuffix rfind rindex rjust rpartition rsplit "
    "rstrip split splitlines startswith strip swapcase title translate upper zfill"
)
_ORDERED: collections.OrderedDict[Any, Any] = collections.OrderedDict()
_ITERATORS = {
    *map(type, (iter([]), iter(()), iter({}), iter({}.values()), iter({}.items()), iter(set()), iter(range(1)))),
    *map(
        type, (iter(""), iter("\u0100"), iter(b""), iter(range(2**70)), reversed([]), reversed({}), iter(bytearray()))
    ),
    *map(type, (iter(_ORDERED), iter(collections.deque()), reversed(collections.deque()))),
}
_ITERTOOLS = named(
    {
        "itertools": "accumulate batched chain combinations combinations_with_replacement compress count cycle "
        "dropwhile filterfalse groupby islice pairwise permutations product repeat starmap takewhile zip_longest "
        "_grouper _tee"
    }
)
METHODS: dict[type, str] = {
    bool: "",  # its own `&`, `|` and `^`; all else is int's
    str: f"{_TEXT} casefold encode format format_map isdecimal isidentifier isnumeric isprintable maketrans",
    bytes: f"{_TEXT} decode hex maketrans",
    bytearray: f"{_TEXT} append clear copy decode extend hex insert maketrans pop remove reverse",
    int: "as_integer_ratio bit_count bit_length conjugate is_integer to_bytes",
    float: "as_integer_ratio conjugate hex is_integer",
    complex: "conjugate",
    tuple: "count index",
    frozenset: "copy difference intersection isdisjoint issubset issuperset symmetric_difference union",
    range: "count index",
    slice: "indices",
    memoryview: "cast hex tobytes tolist toreadonly",
    type(None): "",
    type(...): "",
    type(NotImplemented): "",
    property: "deleter getter setter",
    types.CodeType: "co_lines co_positions replace",
    types.GenericAlias: "",
    types.UnionType: "",
    **dict.fromkeys((type({}.keys()), type({}.items()), type(_ORDERED.keys()), type(_ORDERED.items())), "isdisjoint"),
    **dict.fromkeys((type({}.values()), type(_ORDERED.values())), ""),
    re.Pattern: "findall finditer fullmatch match search split sub subn",
    re.Match: "end expand group groupdict groups span start",
    struct.Struct: "iter_unpack pack unpack unpack_from",
    functools.partial: "",
    datetime.date: "ctime isocalendar isoformat isoweekday replace timetuple toordinal weekday",
    datetime.datetime: "date dst time timetz tzname utcoffset utctimetuple",
    datetime.time: "dst isoformat replace tzname utcoffset",
    datetime.timedelta: "total_seconds",
    datetime.timezone: "dst fromutc tzname utcoffset",
    decimal.Decimal: "adjusted as_integer_ratio as_tuple canonical compare_total compare_total_mag conjugate copy_abs "
    "copy_negate copy_sign is_canonical is_finite is_infinite is_nan is_qnan is_signed is_snan is_zero radix "
    "same_quantum",
    np.generic: "all any argmax argmin argsort astype clip compress conj conjugate copy cumprod cumsum diagonal "
    "flatten item max mean min nonzero prod ravel repeat reshape round searchsorted squeeze std sum swapaxes take "
    "tobytes tolist trace transpose var view",
    np.integer: "is_integer",
    np.float64: "as_integer_ratio is_integer",
    np.dtype: "newbyteorder",
    **dict.fromkeys((operator.itemgetter, operator.attrgetter, operator.methodcaller), "__call__"),
    **dict.fromkeys((*_ITERATORS, *_ITERTOOLS, zip, map, filter, enumerate, reversed), ""),
}
BY_CONTEXT = words(
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ "
    "__mod__ __rmod__ __divmod__ __rdivmod__ __pow__ __rpow__ __abs__ __neg__ __pos__ __round__ __repr__ "
    "__str__ __format__"
)
OF_CLASSES: dict[type, str] = {
    int: "from_bytes",
    float: "__getformat__ fromhex",
    str: "maketrans",
    bytes: "fromhex maketrans",
    bytearray: "fromhex maketrans",
    dict: "fromkeys",
    collections.OrderedDict: "fromkeys",
    datetime.date: "fromisocalendar fromisoformat fromordinal",
    datetime.datetime: "combine fromisoformat utcfromtimestamp",
    datetime.time: "fromisoformat",
    decimal.Decimal: "from_float",
    itertools.chain: "from_iterable",
}
MADE: frozenset[type] = frozenset(
    {
        *(int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, range, slice, object, bytearray),
        *(memoryview, super, property, staticmethod, classmethod, enumerate, zip, reversed, *_ITERTOOLS),
        *(collections.deque, collections.OrderedDict, collections.defaultdict, functools.partial),
        *(operator.itemgetter, operator.attrgetter, operator.methodcaller, decimal.Decimal),
        *(types.SimpleNamespace, types.GenericAlias, datetime.date, datetime.time, datetime.datetime),
        *(datetime.timedelta, datetime.timezone),
    }
)
HELD: frozenset[type] = frozenset(  # classes whose instances have rules of their own, or have nothing to show
    {object, type, super, BaseException, list, dict, set, collections.deque, collections.OrderedDict}
    | {collections.defaultdict, types.MappingProxyType, types.MethodType, types.FunctionType, types.ModuleType}
    | {types.BuiltinFunctionType, types.CellType}
)
NUMPY = {
    "numpy": "argwhere array_equiv asarray_chkfinite base_repr binary_repr bitwise_count broadcast_shapes busday_count "
    "busday_offset common_type compress cumulative_prod cumulative_sum datetime_as_string datetime_data "
    "diag_indices_from einsum_path extract flatnonzero format_float_positional format_float_scientific frombuffer "
    "fromstring histogram2d histogram_bin_edges histogramdd intersect1d is_busday iscomplex isdtype isfortran isnat "
    "isscalar issubdtype iterable ix_ lexsort matvec may_share_memory min_scalar_type mintypecode nanmedian "
    "nanpercentile nanquantile nonzero packbits poly polyadd polyder polydiv polyfit polyint polymul polysub "
    "promote_types ravel_multi_index real_if_close require roots row_stack setdiff1d setxor1d shares_memory "
    "sort_complex spacing tril_indices_from trim_zeros triu_indices_from typename union1d unique unique_all "
    "unique_counts unique_inverse unique_values unpackbits unstack unwrap vecdot vecmat",
    "numpy.lib.scimath": "arccos arcsin arctanh log log10 log2 logn power sqrt",
    "numpy.fft": "fftfreq rfftfreq",
    "numpy.lib.array_utils": "byte_bounds normalize_axis_index normalize_axis_tuple",
    "numpy.lib.stride_tricks": "sliding_window_view",
    "numpy.linalg": "eig eigvals lstsq matrix_norm matrix_rank tensorinv tensorsolve vecdot",
}
