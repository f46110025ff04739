"""How an optimizer's arithmetic is written once, and run op by op or as one compiled update.

- `deferred.py`: Updates put off until their gradients have arrived.
- `fused.py`: All parameters' updates as one graph, compiled to one native call.
- `in_graph.py`: A step as part of a graph that is captured: the rules of all parameters, inlined where the step stands.
- `rule.py`: Update rules: the arithmetic of an optimizer, written once over values and run eager or compiled.
- `rule_optimizer.py`: Optimizers that are an update rule per parameter (SGD, Adam, RMSprop, ...), run in one native
  call or op by op.
- `traced.py`: What a step in a graph does with tensors; these functions run as they are, and record themselves.
- `update.py`: One parameter's update: what it reads, where it goes, and how it runs op by op.
"""
