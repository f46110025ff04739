"""Integers as expressions.

Index arithmetic: `index.py` builds, simplifies and evaluates it, `index_text.py` prints it and reads it.
Sizes that the call decides: `expression.py` is what code computes with (over `polynomial.py` and intervals, `ends.py`);
`size.py` answers questions and notes what was assumed; `size_text.py` prints declarations and reads them.
"""
