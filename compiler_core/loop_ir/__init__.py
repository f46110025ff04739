"""The loop IR: `ir.py` and `expr.py` are the language, grammar first; the rest prints, reads, checks and runs it."""
