"""Engines: other people's compilers and runtimes as backends. One core set of ops, one file of glue an engine.

- `backend.py`: An engine as a backend: graphs are decomposed for it, cut by what it takes, and the rest is our own
  code's.
- `cutting.py`: Cuts a graph between an engine and our own code, by what the engine takes.
- `engine.py`: What an engine is: somebody else's compiler or runtime, that takes graphs of core ops.
- `executable.py`: Runs the segments of a cut graph in order.
- `onnx/`: ONNX: one exporter, and the engines that take its models.
- `openxla/`: XLA: graphs traced by JAX, and compiled.

To add an engine:
1. A file with a class that follows `engine.Engine`: `name`, `devices`, `refuses(call)`, `build(graph)`. In `__init__`
   it imports the package with `require_package(module, extra)`. `refuses` says of a call why not: first whether the
   engine's table has the op, then what only the engine knows. What it refuses is decomposed if it takes what that
   becomes, else our own code runs it.
2. If the engine takes no ONNX: one table, core op -> the engine's op (`onnx/model.py:TABLE` is ONNX's). It holds the
   ops of the core set; more where the engine has one that is better than their decomposition.
3. At the end of the file `ENGINES[name].fill(lambda: EngineBackend(MyEngine()))`.
4. Its name: a `Late` in compiler_core/backend.py:ENGINES, the file in compiler_core/__init__.py:LOADS, an extra in
   pyproject.toml, a row in docs/howto/engines.md.
The tests are there already: tests/conformance/test_conformance_engines.py goes over all ops and all engines.
"""
