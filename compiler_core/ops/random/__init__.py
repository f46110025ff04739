"""Random numbers: counter-based words, torch's own generator, and every kind of draw from either.

- `box_muller.py`: Standard normal numbers of two random words each, by steps that every processor rounds alike:
  normal32, normal64.
- `composite.py`: Random numbers of a key, and every kind of draw: what it is of a key's words, and what of torch's
  generator.
- `draws.py`: Large draws of random floats outside of a trace: `rand` and `randn` computed block by block, by
  several threads.
- `mapped.py`: Draws of functions that vmap maps: one for each example, of all of them at once, or the same for all.
- `mersenne.py`: Torch's random numbers of the CPU: mt19937, and what torch's kernels make of its words, in their
  order.
- `on_device.py`: Random numbers made on a CUDA device: words, uniform and normal ones, each by one kernel, the
  CPU's bits.
- `op.py`: Counter-based random bits: the philox op.
"""
