"""Code from programs: C++ for the CPU, Triton for GPUs, and the backends that compile graphs by them.

- `cpp/`: C++ from loop IR: types, indices, scalars, expressions, statements, programs, in that order of dependence.
- `cuda/`: Programs for a CUDA device: kernels as cubins, and the C++ host function that launches them.
- `cuda_backend.py`: Graphs for a CUDA device: kernels as cubins, one host function a graph; what backend "codegen" does
  with such graphs.
- `failed.py`: Why a check of generated code failed: which value, and at which line of the user's.
- `families.py`: Sources that differ in numbers alone: which numbers are to be variables, so that one code serves them
  all.
- `index.py`: Indices as integer arithmetic of a target: what C++ and Triton share.
- `native_backend.py`: The backend "codegen": graphs to one shared object, one native call per graph; on the CPU, by
  C++.
- `pointwise.py`: Composites that work element by element as C++ and CUDA C, for eager code.
- `device_rows.py`: Composites that work row by row as CUDA C, for eager code.
- `row_values.py`: Composites that work row by row as values, whatever the rows' length.
- `rows.py`: The same as C++, for eager code.
- `step_costs.py`: What each step of a program moves and computes, for the profiler's GB/s and GFLOP/s.
- `triton/`: Triton code generator: loop-IR kernels as `triton.jit` functions; run by Triton's interpreter, or compiled
  to PTX.
- `triton_backend.py`: The backend "triton": the same fused programs as "codegen", as Triton kernels.
"""
