"""The tape: what it records, how it runs backward, and what a user may hang on it.

- `again.py`: The backward of a compiled call on the tape, by computing the call again.
- `anomaly.py`: Anomaly mode: a backward pass ends where a gradient becomes NaN, and says which op of which line
  made it.
- `backward.py`: The ways into the tape: backward, grad, record_function for compiled calls, and Function for a
  user's own rules.
- `boundaries.py`: Boundaries and rules of a program's own on the tape: one node each, whose backward is Python.
- `by_rule.py`: The gradients of one primitive by its own rule: what nodes of the tape compute, and what calls made
  again note.
- `engine.py`: The engine: runs the tape backward from some outputs, and accumulates into leaves or hands gradients
  back.
- `function.py`: autograd.Function: a user's own forward with a user's own backward, as torch.autograd.Function.
- `function_apply.py`: `Function.apply`: the user's forward between two steps of ours.
- `function_calls.py`: Calls of an `autograd.Function`: what is recorded before and after forward, and how backward
  is run.
- `function_purity.py`: Whether a backward only computes, so that tracing it once stands for running it at every
  backward.
- `function_rules.py`: Calls of an `autograd.Function` under a trace: its results, with the user's backward as a
  rule of the graph.
- `given.py`: Gradients that a backward pass is given on memory of others (NumPy's): where nothing of them is kept, not
  copied.
- `gone.py`: What stands for a saved value that is gone: changed in place since, freed after a backward, or never
  kept.
- `grad_mode.py`: Whether operations are recorded for backward: no_grad, enable_grad, set_grad_enabled,
  inference_mode.
- `gradcheck.py`: gradcheck: is a function's backward the derivative of its forward? As torch.autograd.gradcheck and
  gradgradcheck.
- `handles.py`: What registering a hook returns, anywhere: torch.utils.hooks.RemovableHandle.
- `hooks.py`: Hooks on a tensor's gradient, and `retain_grad()`: methods of Tensor.
- `inference.py`: Inference tensors: those made inside `inference_mode()`, which have no version and take part in no
  gradient.
- `segment.py`: A segment of the tape that is thrown away and computed again when the backward reaches it.
- `shown_back.py`: The gradients of views by `reshape` and `permute`, at once: the same array, shown as the operand
  is.
- `tape.py`: The eager tape: one node for each recorded op application, linked to the nodes that made its operands.
- `taped.py`: Derivatives of functions (torch.func): leaves of their own, the tape behind them, gradients, also while
  capturing.
- `watching.py`: Who looks on while the tape is written.
- `windows.py`: Gradients of parts of one value, put together once all have come: those of `unbind`, `chunk`,
  `split`, of slices.
"""
