"""Run under the sanitizers: a program with one access outside of the buffer named; none is named "nothing".

Each access is by one element, at the end or before the beginning. In the arena the temps' bytes are their neighbours'.
"""

from __future__ import annotations

import sys

import numpy as np
from exact_buffers import compile_exactly

from compiler_core.loop_ir.parse import parse_program

TEXT = """
kernel k(p0: f32[3] in, p1: f32[3] in, p2: f32[3] out)
  for i0 in 3 serial
    p2[i0] = add(p0[i0], p1[i0])

kernel first(p0: f32[3] in, p1: f32[3] in, p2: f32[3] out)
  for i0 in 3 serial
    p2[{temp}] = add(p0[{input}], p1[{constant}])

kernel last(p0: f32[3] in, p1: f32[3] in, p2: f32[3] out)
  local s0: f32[3]
  for i0 in 3 serial
    s0[{local}] = mul(p0[i0], p1[i0])
    p2[{output}] = s0[i0]

program broken
  buffer x: f32[3] input
  buffer c: f32[3] constant [1.0, 2.0, 3.0]
  buffer out: f32[3] output
  buffer a: f32[3] temp @0
  buffer b: f32[3] temp @64
  call first(x, c, a)
  call k(x, x, b)
  call last(a, b, out)
  inputs x
  outputs out
  arena 128
"""
SLOTS = ("input", "constant", "temp", "local", "output")


def main(named: str, index: str) -> None:
    program = parse_program(TEXT.format(**{slot: index if slot == named else "i0" for slot in SLOTS}))
    (run,) = compile_exactly([program])
    x = np.array([1, 2, 3], np.float32)
    (result,) = run([x])
    np.testing.assert_array_equal(result, (x + [1, 2, 3]) * 2 * x)
    print("right")


if __name__ == "__main__":
    main(*sys.argv[1:])
