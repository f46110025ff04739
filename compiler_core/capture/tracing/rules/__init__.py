"""Rules: what answers a call instead of the callable itself, and what is known of callables written in C.

A rule is given the parts (`parts.py`) and a call's arguments; it gives the result, or `Enter` of what is to run. By
callable: `builtin_rules.py` (and all of them together), `iterable_rules.py`, `library_rules.py`, `numpy_rules.py`,
`overriding.py` (`__torch_function__`), `copying.py`, `autograd_rules.py` (`backward()`). By kind: `cached.py`
(`lru_cache`), `pure_calls.py` (what only computes; `pure.py` and `pure_table.py` say what that is). `closures.py`:
which functions hold what is captured.
"""
