"""Attention on a CUDA device: how `attention` and `attention_backward` are launched as Triton kernels.

In: the operands' layouts and the attributes of a call (ops/attention/op.py). Out: `FORWARD`, `BACKWARD`: the launches
of codegen/triton/kernels/attention.py with their constants, blocks, warps and stages; or the reason why they do not
take a call, which then goes through products and a softmax (attention/composed.py). Operands may have any strides.
Blocks are chosen from `BLOCKS`: of some ten each what was fastest on an H200 (Triton 3.6; causal, 1024 positions).
There 16x12x1024x64 of bf16 take 0.088 (forward), 0.103 (queries) and 0.158 ms (keys); torch, which has cuDNN do it,
0.085, and 0.357 with the backward. Where q, k and v lie in one product and no cache holds them, 0.101, 0.127 and 0.156;
without sections of heads (`SECTION_NBYTES`) 0.107, 0.145 and 0.185.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from compiler_core import cuda
from compiler_core.dtype import DType, bfloat16, bool_, float16, float32, int32
from compiler_core.ops.attention.sizes import AttentionSizes, beside
from compiler_core.ops.random.op import least_kept
from compiler_core.ops.routine import Attrs, KernelLaunch, KernelPlan, Strided, TritonKernels

MAX_WIDTH = 256  # blocks of wider rows do not fit in the registers
_TAKEN = (bfloat16, float16, float32)
# of products of f32: three products of tf32's 11 bits, good to about 2^-21; "ieee" has no matrix unit, and compiles for
# a minute; "tf32", where it is permitted, is one product. 16-bit floats do not ask
PRECISION = "tf32x3"
_STRIDES = zip("QKVMGS", ("BHLE", "BHSE", "BHSE", "BHLS", "BHLV", "BHL"))
_VARIABLES = frozenset(  # the constants that may be variables: codegen/triton/many_sizes.py
    {"B", "L", "S", "NQ", "NK", "AT", "SECTION", "RB", "RL", "K0", "RKB", "RK", "V0", "RVB", "RV"}
    | {prefix + axis for prefix, axes in _STRIDES for axis in axes}
)
BITS_NBYTES = 64 << 20  # of what dropout keeps, in scratch memory: a draw is some 60 instructions
SECTION_NBYTES = 16 << 20  # of the L2 cache (an H200's halves have 30 MB each), for what blocks of heads read again


class AttentionBlocks(NamedTuple):
    """rows: queries of a block. columns: keys. warps of a program; stages: blocks in flight."""

    rows: int
    columns: int
    warps: int
    stages: int


# function -> (bytes of an element, padded width) -> blocks
BLOCKS: dict[str, dict[tuple[int, int], AttentionBlocks]] = {
    "attention_forward": {
        (2, 64): AttentionBlocks(64, 64, 4, 3),
        (2, 128): AttentionBlocks(64, 64, 4, 3),
        (2, 256): AttentionBlocks(64, 32, 4, 2),
        (4, 64): AttentionBlocks(64, 64, 4, 2),
        (4, 128): AttentionBlocks(32, 32, 4, 2),
        (4, 256): AttentionBlocks(16, 16, 4, 1),
    },
    "attention_queries": {
        (2, 64): AttentionBlocks(64, 32, 4, 3),
        (2, 128): AttentionBlocks(64, 32, 4, 2),
        (2, 256): AttentionBlocks(64, 32, 8, 1),
        (4, 64): AttentionBlocks(32, 32, 4, 2),
        (4, 128): AttentionBlocks(16, 32, 8, 1),
        (4, 256): AttentionBlocks(16, 16, 8, 1),
    },
    "attention_keys": {
        (2, 64): AttentionBlocks(32, 64, 4, 3),
        (2, 128): AttentionBlocks(64, 128, 8, 3),
        (2, 256): AttentionBlocks(32, 32, 8, 1),
        (4, 64): AttentionBlocks(32, 32, 4, 2),
        (4, 128): AttentionBlocks(16, 32, 8, 1),
        (4, 256): AttentionBlocks(16, 16, 8, 1),
    },
}


def blocks_of(function: str, dtype: DType, sizes: AttentionSizes) -> AttentionBlocks:
    """The blocks of a launch; those of few queries or keys are no larger than these need."""
    width = max(_padded(sizes.width), _padded(sizes.value_width), 64)
    made = BLOCKS[function][dtype.itemsize, width]
    rows, columns = min(made.rows, _padded(sizes.queries)), min(made.columns, _padded(sizes.keys))
    is_whole = rows == made.rows and columns == made.columns
    return AttentionBlocks(rows, columns, made.warps if is_whole else min(made.warps, 4), made.stages)


def _padded(n: int) -> int:
    """The next power of two, 16 or more: what a matrix unit takes."""
    return max(1 << (n - 1).bit_length(), 16)


# ---- constants


def _strides(prefix: str, axes: str, strides: Sequence[int]) -> dict[str, int]:
    return {prefix + axis: stride for axis, stride in zip(axes, strides, strict=True)}


def _sizes(sizes: AttentionSizes, operands: Sequence[Strided]) -> dict[str, int]:
    """operands: q, k, v, and what follows them."""
    (q, k, v), (mask, _) = operands[:3], beside(operands)
    return {
        "B": sizes.batch, "H": sizes.heads, "GROUP": sizes.heads // sizes.key_heads, "L": sizes.queries,
        "S": sizes.keys,
        "E": sizes.width, "V": sizes.value_width, "PAD_E": _padded(sizes.width), "PAD_V": _padded(sizes.value_width),
        **_strides("Q", "BHLE", q.strides), **_strides("K", "BHSE", k.strides), **_strides("V", "BHSE", v.strides),
        **_strides("M", "BHLS", mask[0].strides if mask else (0, 0, 0, 0)),
    }  # fmt: skip


def _common(sizes: AttentionSizes, operands: Sequence[Strided], attrs: Attrs) -> dict[str, int | float | str]:
    mask, _ = beside(operands)
    dropout = attrs.get("dropout", 0.0)
    return {
        **_sizes(sizes, operands),
        "SCALE": float(attrs["scale"]),
        "CAUSAL": sizes.causal,
        "MASK": 0 if not mask else 2 if mask[0].dtype is bool_ else 1,
        "PRECISION": "tf32" if cuda.precision.tf32 and operands[0].dtype is float32 else PRECISION,
        "LEAST": least_kept(dropout) if dropout else 0,
        "KEPT": 1.0 / (1.0 - dropout),
    }


def _more(first: int, operands: Sequence[Strided]) -> tuple[str, str]:
    """The names of a mask and of a key; of one that is not there, that of an operand which is."""
    mask, key = beside(operands)
    found = [f"o{k}" for k in range(first + 3, first + len(operands))]
    return found[0] if mask else f"o{first}", found[-1] if key else f"o{first}"


def _stream(attrs: Attrs) -> dict[str, int]:
    return {"STREAM": attrs["stream"]} if attrs.get("dropout") else {}


def _launch(
    function: str,
    arguments: Sequence[str],
    sizes: AttentionSizes,
    dtype: DType,
    constants: dict[str, int | float | str],
    numbers: dict[str, int],
) -> KernelLaunch:
    rows, columns, warps, stages = blocks_of(function, dtype, sizes)
    group = sizes.heads // sizes.key_heads
    if function == "attention_keys":
        heads, blocks, read = sizes.batch * sizes.key_heads, -(-sizes.keys // columns), float(sizes.queries * group)
    else:
        heads, blocks, read = sizes.batch * sizes.heads, -(-sizes.queries // rows), sizes.keys / group
    nbytes = read * (sizes.width + sizes.value_width) * dtype.itemsize  # that the blocks of a head read again and again
    section = min(max(int(SECTION_NBYTES / max(nbytes, 1)), 1), heads)
    constants |= {"BM": rows, "BN": columns, "SECTION": section}
    constants |= {"WHOLE_L": sizes.queries % rows == 0, "WHOLE_S": sizes.keys % columns == 0}
    constants |= {} if numbers else {"STREAM": 0}
    return KernelLaunch(function, tuple(arguments), constants, heads * blocks, warps, stages, numbers)


# ---- the two routines


def _forward(operands: tuple[Strided, ...], attrs: Attrs) -> KernelPlan:
    sizes = AttentionSizes.of([x.meta for x in operands], attrs["causal"])
    names = ("o0", "o1", "o2", *_more(0, operands), "out")
    constants = _common(sizes, operands, attrs) | {"STRICT": bool(attrs["strict"])}
    return KernelPlan((_launch("attention_forward", names, sizes, operands[0].dtype, constants, _stream(attrs)),))


def _backward(operands: tuple[Strided, ...], attrs: Attrs) -> KernelPlan:
    sizes = AttentionSizes.of([x.meta for x in operands[3:]], attrs["causal"])
    g, g_lse, _, *rest = operands
    batch, row, head, column = g.strides
    common = _common(sizes, rest, attrs) | _strides("G", "BHLV", (batch, head, row, column))
    results = _results(sizes, g.dtype)
    summed = attrs["summed"]
    common["SUMMED"] = summed
    first = common | _strides("S", "BHL", g_lse.strides[-3:]) | {name: results[name] for name in ("RB", "RL")}
    second = common | {name: n for name, n in results.items() if name not in first}
    given = ("o3", "o4", "o5", *_more(3, rest))
    queries, keys = ("s2", "s3") if summed else ("s0", "s0")
    words = _words(sizes, g.dtype) if attrs.get("dropout") else 0
    first["UNIT"] = second["UNIT"] = blocks_of("attention_queries", g.dtype, sizes).columns if words else 0
    bits = "s0" if not words else "s4" if summed else "s2"
    launches = (
        _launch("attention_queries", ("o0", "o1", "o2", *given, "out", "s0", "s1", queries, bits), sizes, g.dtype,
                first, _stream(attrs)),
        _launch("attention_keys", ("o0", *given, "out", "s0", "s1", keys, bits), sizes, g.dtype, second,
                _stream(attrs)),
    )  # fmt: skip
    rows = (float32, sizes.batch * sizes.heads * sizes.queries)
    made = _with_sums(sizes, launches, rows) if summed else KernelPlan(launches, (rows, rows))
    return replace(made, scratch=(*made.scratch, (int32, words))) if words else made


def _words(sizes: AttentionSizes, dtype: DType) -> int:
    """How many words hold what dropout keeps, between the two kernels of a backward; 0: these are too many, and it is
    drawn again."""
    unit = blocks_of("attention_queries", dtype, sizes).columns
    words = sizes.batch * sizes.heads * sizes.queries * -(-sizes.keys // unit)
    return words if words * int32.itemsize <= BITS_NBYTES else 0


def _with_sums(sizes: AttentionSizes, launches: tuple[KernelLaunch, ...], rows: tuple[DType, int]) -> KernelPlan:
    """Each block of queries, and of keys, leaves its sums in a row of scratch memory; a third launch adds these up."""
    queries, keys = (launch.programs // heads for launch, heads in zip(launches, (sizes.heads, sizes.key_heads)))
    of_queries, of_keys = sizes.heads * sizes.width, 2 * sizes.key_heads * sizes.width
    width, height = 16, min(_padded(max(queries, keys)), 256)  # columns of a program, rows that it reads at once
    constants = {
        "NQ": queries, "WQ": of_queries, "NK": keys, "WK": of_keys, "BM": height, "BN": width,
        "AT": sizes.batch * sizes.queries * sizes.columns, "WHOLE_Q": queries % height == 0,
        "WHOLE_K": keys % height == 0,
    }  # fmt: skip
    programs = -(-of_queries // width) + -(-of_keys // width)
    last = KernelLaunch("attention_sums", ("s2", "s3", "out"), constants, programs, 4, 2)
    scratch = (rows, rows, (float32, queries * of_queries), (float32, keys * of_keys))
    return KernelPlan((*launches, last), scratch)


def _results(sizes: AttentionSizes, dtype: DType) -> dict[str, int]:
    """Where gradients lie: strides of batch and position; of those of keys and values, the place of the first, too."""
    heads, keys, width, value_width = sizes.heads, sizes.key_heads, sizes.width, sizes.value_width
    if sizes.has_gradients_beside(dtype):
        row = sizes.columns
        batch = sizes.queries * row
        places = (batch, row, heads * width, batch, row, (heads + keys) * width, batch, row)
    else:
        k, v = sizes.batch * sizes.queries * heads * width, sizes.batch * sizes.keys * keys * width
        rows = (heads * width, keys * width, keys * value_width)
        places = (
            sizes.queries * rows[0],
            rows[0],
            k,
            sizes.keys * rows[1],
            rows[1],
            k + v,
            sizes.keys * rows[2],
            rows[2],
        )
    return dict(zip(("RB", "RL", "K0", "RKB", "RK", "V0", "RVB", "RV"), places, strict=True))


def _refuses(operands: tuple[Strided, ...], attrs: Attrs, first: int) -> str:
    q, *rest = operands[first:]
    sizes = AttentionSizes.of([x.meta for x in (q, *rest)], attrs["causal"])
    if q.dtype not in _TAKEN:
        return f"kernels of attention are for 16-bit floats and f32, not {q.dtype.name}"
    if max(sizes.width, sizes.value_width) > MAX_WIDTH:
        return f"kernels of attention take heads up to {MAX_WIDTH} wide"
    if first and not _is_dense(operands[2]):
        return "the packed result of attention does not lie contiguously"
    row = (sizes.heads + 2 * sizes.key_heads) * max(sizes.width, sizes.value_width)  # at most, of a result
    spans = [sum(n * stride for n, stride in zip(x.shape[2:], x.strides[2:])) for x in (q, *rest)]
    spans += [sizes.queries * sizes.keys] if attrs.get("dropout") else []  # by which a weight draws
    if max(*spans, row * max(sizes.queries, sizes.keys)) >= 1 << 31:
        return "a head of attention spans 2^31 elements or more"
    return ""


def _variables(operands: tuple[Strided, ...], attrs: Attrs, first: int) -> frozenset[str]:
    """Sizes and strides, unless a product of them, the place of a number in an array, could have more than 31 bits."""
    sizes = AttentionSizes.of([x.meta for x in operands[first:]], attrs["causal"])
    row = (sizes.heads + 2 * sizes.key_heads) * max(sizes.width, sizes.value_width) + 2 * sizes.heads
    return _VARIABLES if sizes.batch * max(sizes.queries, sizes.keys) * row < 1 << 31 else frozenset()


def _is_dense(packed: Strided) -> bool:
    return packed.numel <= 1 or packed.strides == (1,)


_SOURCE = "attention_blocks attention"
FORWARD = TritonKernels(_SOURCE, partial(_refuses, first=0), _forward, partial(_variables, first=0))
BACKWARD = TritonKernels(_SOURCE, partial(_refuses, first=3), _backward, partial(_variables, first=3))
