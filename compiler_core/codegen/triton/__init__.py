"""Triton code generator: loop-IR kernels as `triton.jit` functions; run by Triton's interpreter, or compiled to PTX."""
