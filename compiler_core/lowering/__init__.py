"""Graph -> definitions -> Program. `lower.py` is the list of steps, `definition.py` the form between them.

define.py    one definition a value, by its op's lower rule (emitter.py, scatter.py, gemm.py)
inline.py    reordered reads written out (boxes.py)
round.py, epilogue.py    on a GPU: sums rounded where they end, biases added by the product
place.py     matrix products where their reader wants them (layout.py)
triangle.py  and only where a causal mask lets something through
"""
