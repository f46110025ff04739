"""Order by value: the primitives, native code for them, and torch's functions over them.

- `composite.py`: Functions that order by value: sort, argsort, msort, topk, kthvalue, median, nanmedian, with
  torch's arguments.
- `cpp.py`: The C++ that orders lines of numbers: places in order, the first k places, the place of one rank.
- `native.py`: How generated code orders by value: loops over lines, each a call of a function of sorting/cpp.py.
- `op.py`: Order by value: argsort, topk_places and rank_place, from which sorting, medians and their kin are
  composed.
"""
