"""Ops: what an op is, the table of them all, and the functions composed of them.

The files beside this one are what every op uses: `registry.py` (what an op is; `bind`, through which every op passes),
`routine.py` and `rules.py` (how it is lowered), `checks.py`, `broadcasting.py`, `casting.py`, `aliasing.py`,
`refusals.py`, `size_numbers.py`; `program_operator.py` has the op that runs what a program defined; `prims.py` has the
primitives as functions, `functional.py` those over Values.
The rooms hold the ops, and torch's functions over them: `primitives/`, `composites/`, `special/`, `signal/`,
`attention/`, `convolution/`, `pooling/`, `linear_algebra/`, `recurrent/`, `indexing/`, `sorting/`, `random/`. Where a
room is about one op, `op.py` registers it and `composite.py` has torch's functions. A room's first page lists its
files. `batching/`: values that stand for a batch (vmap), and the rules of ops on them.
Importing this package registers every primitive.
"""

from compiler_core.ops import program_operator
from compiler_core.ops.attention import op as attention_op
from compiler_core.ops.collectives import messages as collective_messages
from compiler_core.ops.collectives import op as collective_op
from compiler_core.ops.convolution import inner, last
from compiler_core.ops.convolution import op as convolution_op
from compiler_core.ops.indexing import op as indexing_op
from compiler_core.ops.linear_algebra import eigen, factor, matmul, solving
from compiler_core.ops.pooling import inner as inner_windows
from compiler_core.ops.pooling import windows, windows_maximum
from compiler_core.ops.primitives import (
    arithmetic,
    bits,
    compare,
    complex_parts,
    convert,
    corners,
    creation,
    custom_gradient,
    deviation,
    integer_routines,
    inverse,
    joining,
    movement,
    pointwise,
    reduction,
    requiring,
    scans,
    strided,
)
from compiler_core.ops.random import box_muller
from compiler_core.ops.random import op as random_op
from compiler_core.ops.recurrent import op as recurrent_op
from compiler_core.ops.signal import fourier
from compiler_core.ops.sorting import op as sorting_op
from compiler_core.ops.special import elementary, gamma, incomplete_gamma
