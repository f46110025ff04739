"""Making Tensors: from data, from numbers, at random; and where they are made.

- `creation.py`: Making Tensors: from Python data, filled, numbered. torch's names, arguments and defaults.
- `filling.py`: What draws fill: tensors in place, fresh ones like others, masks; in which order, within which
  bounds.
- `legacy_types.py`: torch's old tensor types: torch.FloatTensor, LongTensor, BoolTensor, ...: names for
  annotations, tests and making.
- `placement.py`: Where tensors are and go: the default device, `with torch.device(...)`, moving them, making them
  on any device.
- `random.py`: Random state: generators of torch's numbers (mt19937) on the CPU, and of counter-based ones (Philox).
- `random_creation.py`: Making random Tensors: rand, randn, randint, randperm, normal, bernoulli and their `_like`
  forms.
- `random_state.py`: States of random generators: torch's, counter-based ones, and one that mapped calls share; the
  shard of draws.
- `rejection_draws.py`: Draws that need rejection: Gamma, Dirichlet, Poisson, binomial and von Mises variates.
- `there.py`: Zeros of the lone CUDA device, made at once.
"""
