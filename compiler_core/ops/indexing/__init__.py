"""Indexing by data: the primitives, and torch's and NumPy's spellings over them.

- `adding.py`: Adding to places of an array that may come twice: index_add, scatter_add, an embedding's gradient.
- `composite.py`: Indexing over any Value: x[...] as NumPy and torch spell it, its functional assignment, and
  torch's index functions.
- `ends.py`: Where ints and slices of an index stand in a dim, of ints and of sizes that are symbols.
- `known.py`: `x[index]` by places that are known to be in range.
- `op.py`: Indexing by data: take, index_add, index_copy (whole rows); gather, scatter_add, scatter (torch's, along
  one dim).
- `placing.py`: Parts of a tensor replaced or reduced into: masked_scatter, scatter_reduce, select_scatter.
"""
