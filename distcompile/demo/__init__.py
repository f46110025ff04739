"""The demo: a character-level GPT learns English on data-parallel ranks, compiled, and shows that it did so rightly.

    distcompile-run -n 2 -m distcompile.demo

`__main__` is the map: text -> model -> training -> sample -> parity -> overlap -> where the time went.
"""
