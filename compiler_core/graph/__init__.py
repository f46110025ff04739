"""The tensor IR: `ir.py` is the language, grammar first; the rest prints, reads, checks, runs and cuts it.

- `effects.py`: Calls that other ranks take part in (`Op.effect`): what keeps them, and what keeps their order.
- `extract.py`: Takes a part of a Graph out as a Graph of its own.
- `input_sizes.py`: The sizes of a symbolic graph, told by the shapes of its inputs.
- `interpret.py`: Runs a Graph op by op: the living definition of what a graph means, and the oracle of all generated
  code.
- `ir.py`: Graph: the tensor IR. Immutable nodes over ops, in topological order.
- `kept.py`: What a call says of the checkpointed function that it belongs to.
- `minify.py`: Makes a graph that shows a fault small. As a script that somebody else can run: compiler_core/repro.
- `over_batch.py`: A graph of one example as a graph of a batch of them: every op by its vmap rule.
- `parse.py`: Text -> Graph: the inverse of `print.py`, by recursive descent over a token list.
- `passes/`: Passes over Graph. Each is a frozen dataclass: a valid Graph in, a valid Graph out, nothing else changed.
- `print.py`: Graph -> text. The text evaluates back to an equal graph (`parse.py`) and is the graph's identity (cache
  keys).
- `sizes.py`: A graph of symbolic sizes for the sizes of one call.
- `verify.py`: Checks a Graph's invariants; every pass must leave a graph that this accepts.
"""
