"""Graph -> definitions. `definition.py` is the language, grammar first; `lower.py` the list of steps.

define.py     one definition a value, by its op's lower rule (emitter.py, scatter.py, gemm.py, ranges.py)
passes.py     the passes, in order: inline.py (boxes.py), round.py, epilogue.py, place.py (layout.py), triangle.py
target.py     what it is lowered, and scheduled, for: CPU or GPU
print.py, parse.py, verify.py, interpret.py   text and back; what is valid; what it means
"""
