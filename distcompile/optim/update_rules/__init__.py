"""How an optimizer's arithmetic is written once, and run op by op or as one compiled update.

- `array_optimizer.py`: Optimizers whose update looks at a whole parameter at once (norms, products of matrices):
  Adafactor, Muon.
- `deferred.py`: Updates put off until their gradients have arrived.
- `fused.py`: All parameters' updates as one graph, compiled to one native call.
- `rule.py`: Update rules: the arithmetic of an optimizer, written once over values and run eager or compiled.
- `rule_optimizer.py`: Optimizers that are an update rule per parameter (SGD, Adam, RMSprop, ...), run in one native
  call or op by op.
- `update.py`: One parameter's update: what it reads, where it goes, and how it runs op by op.
"""
