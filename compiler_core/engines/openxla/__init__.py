"""XLA: graphs traced by JAX, and compiled.

- `engine.py`: The backend "openxla": XLA compiles the graphs, through JAX.
- `rules.py`: Operations as JAX traces them: an op's own definition, over jax.numpy, or a rule below.
"""
