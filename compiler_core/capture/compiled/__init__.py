"""What a user holds after `compile`: the compiled function or module, its entries, what is asked of it.

- `control.py`: What may be done when a call fits nothing that was compiled, for the whole process; and forgetting
  what was compiled.
- `counts.py`: How often what happened to compiled functions, over the whole process.
- `entry.py`: One compiled entry of a function: runs a call whose guards hold, from input values to the user's
  result.
- `entry_point.py`: `compile`: the public entry, with torch.compile's arguments.
- `explain.py`: What `CompiledFunction.explain()` tells: frozen facts that print as a report.
- `function.py`: A function or module that is captured at its first call and runs compiled from then on.
- `in_place.py`: Parameters and state of a captured step, written where they are: new values over the old ones.
- `kept.py`: What a compiled entry keeps of the tensors from outside: how each call finds them, and what is the same
  in all.
- `module.py`: A compiled module that still is the module, to all who ask: the same class, attributes, parameters,
  state dict keys.
- `reached.py`: Functions of the program that only uncompiled code calls, compiled each by itself.
- `sized.py`: An entry whose sizes the call decides: an entry for each set of them.
"""
