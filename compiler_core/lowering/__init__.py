"""Graph -> definitions -> Program. `lower.py` is the list of steps, `definition.py` the form between them.

define.py    one definition a value, by its op's lower rule (emitter.py, scatter.py, gemm.py)
inline.py    reordered reads written out (boxes.py)
place.py     matrix products where their reader wants them (layout.py)
"""
