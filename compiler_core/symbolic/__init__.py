"""Integers as expressions. Index arithmetic: `index.py` builds, simplifies and evaluates it, `index_text.py` prints it
and reads it. Sizes that the call decides: `size.py`."""
