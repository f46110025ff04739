"""A product as cuBLASLt is asked for it: what its descriptors say, and what its algorithm is chosen for.

In: the layouts of a GEMM on a CUDA device. Out: `Product`, data that artefacts keep. cuBLASLt is column-major, as
cuBLAS: D (m, n) = alpha op(A) op(B) + beta D (+ bias, one number a row), where A is our second operand, B our first.
"""

from __future__ import annotations

from dataclasses import astuple, fields

from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Product:
    """kind, result: cudaDataType_t of A and B, of D. ta, tb: 1 where a matrix is transposed.

    ld*: leading dimensions, stride_*: from one of `batch` matrices to the next, in elements. bias: whether one is
    added, of D's type. scaled: whether alpha and beta are read on the device.
    """

    kind: int
    result: int
    m: int
    n: int
    k: int
    ta: int
    tb: int
    lda: int
    ldb: int
    ldd: int
    batch: int = 1
    stride_a: int = 0
    stride_b: int = 0
    stride_d: int = 0
    bias: bool = False
    scaled: bool = False

    def to_json(self) -> list[int]:
        return [int(value) for value in astuple(self)]

    @staticmethod
    def from_json(row: list[int]) -> Product:
        values = {one.name: value for one, value in zip(fields(Product), row, strict=True)}
        flags = {name: bool(values.pop(name)) for name in ("bias", "scaled")}
        return Product(**values, **flags)  # type: ignore[arg-type]

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    def __str__(self) -> str:
        kinds = {0: "f32", 2: "f16", 14: "bf16"}
        turned = "".join("NT"[t] for t in (self.ta, self.tb))
        batch = f"{self.batch} x " if self.batch > 1 else ""
        bias = " + bias" if self.bias else ""
        return f"{batch}{self.m} x {self.n} x {self.k} {turned} {kinds[self.kind]} -> {kinds[self.result]}{bias}"
