"""What compiled code needs on this machine: a compiler, the artefact cache, memory, threads, libraries, executables.

- `blas.py`: The routines of scipy-openblas32 that generated code calls (CBLAS and LAPACKE, 32-bit integers), as
  addresses.
- `bound.py`: The size of the artefact cache, held to `config.cache_limit`: what was used longest ago goes.
- `build.py`: Source text to shared object: one compiler process per translation unit, side by side, then the link.
- `cache.py`: Content-addressed cache of compiled artefacts, safe for many processes at once.
- `callback.py`: Calls from native code back into NumPy definitions of routines.
- `code_exchange.py`: Compiled code from other hosts of a job: who needs an artefact asks before it compiles, and gives
  what it compiled.
- `code_server.py`: The process on rank 0's host that hands compiled code from one host of a job to the others.
- `constants.py`: The constants of compiled programs in one file: their bytes, one after the other; where each lies is
  told apart.
- `cuda/`: What runs on a CUDA device: its driver, the memory of compiled programs, executables.
- `executor.py`: Calls one entry point of a compiled shared object: arrays in, arrays out, the GIL released in between.
- `frames.py`: The extension that evaluates frames (frames.cpp): built at the first need, loaded once a process.
- `freed_memory.py`: What the C library keeps of the memory that arrays give back, so that the next step does not
  fault it in again.
- `lasting_memory.py`: Memory that outlives a step: the scratch arena of each thread, and the recycled arrays behind a
  call's outputs.
- `launching.py`: A compiled graph whose collectives are under way while it computes: `Executable` around `Executable`.
- `layout.py`: Where CPython and NumPy keep what a native call needs, so that it can read arrays without Python's help.
- `limits.py`: What this machine can do at most, measured once a process: a copy of large arrays, a large product of
  matrices.
- `onednn.py`: oneDNN's convolutions: whether the library is here and can do one, and the plan that generated code runs.
- `places.py`: Where compiled artefacts are kept, where they cannot be kept, and how of many processes one builds.
- `pool.py`: The threads that generated code computes with: one pool a process, of our own.
- `portable.py`: Compiled artefacts as one file, to be taken to other processes, containers and hosts of the same kind.
- `profiler.py`: Time per kernel and library call of compiled graphs, measured inside the native code, on demand.
- `resident.py`: How much memory a step takes, measured: the peak of what is resident while it runs.
- `stock.py`: What lies in the cache of compiled artefacts, and how it is cleared away.
- `toolchain.py`: The C++ compiler of this machine: where it is, what tells it apart from another, and with which flags
  we call it.
"""
