"""Ahead-of-time autograd: the joint graph of forward and backward, its partition, and how a compiled backward runs.

- `boundary.py`: Where Python takes over a backward: `gradient_boundary` (an identity with a hook) and `opaque_backward`
  (a rule).
- `branch.py`: cond: one of two graphs is run, as a truth value says (torch.cond in a graph); cond_select: both, and one
  is taken.
- `budget.py`: A step in less memory: what is saved for the backward is chosen by what the backward then takes at once.
- `custom_gradient.py`: What flows back through `custom_gradient` (ops/primitives/custom_gradient.py): while a joint
  graph is made, and on the tape.
- `cutting.py`: Cuts a graph into parts that run one after the other, and lets values cross the cuts.
- `halt.py`: Halts: the stops of a compiled backward, ready to run between its steps.
- `in_turn.py`: A step's forward and what comes after it, two executables that run in turn as one.
- `inner_uses.py`: Outputs of a compiled call that are also used inside of it: outside, only a part of their gradient
  can be seen.
- `joint.py`: The joint graph: a forward Graph continued by its own gradient, through each op's `vjp` (the rules the
  tape uses).
- `layout.py`: What a backward reads and makes, by place: fixed when the joint graph is split, whoever cuts it and
  however.
- `linking.py`: Links what a backend compiled of one backward: which step reads and makes which places of one flat list
  of values.
- `loop.py`: while_loop: a graph is run as long as another one says so (torch.while_loop in a graph); and its gradient.
- `memory.py`: What a compiled call takes beside its inputs, as its plans have it: known once it is compiled, before it
  runs.
- `min_cut.py`: Minimum cut of a flow network with integer capacities.
- `needs.py`: What the backward of each output needs: which values it reads, and whose backward has to run in the same
  pass.
- `of_graphs.py`: What ops need that run graphs, which are their attributes as texts: several results as one, texts made
  of others.
- `offload.py`: Saved values that wait for the backward in the host's memory: which, and the two halves that say so.
- `packed.py`: A compiled call on the tape under `saved_tensors_hooks`: what it saves is packed.
- `partition.py`: Cuts a joint graph into a forward and a backward graph at the cheapest set of saved values.
- `pruning.py`: The backward of some of a call's outputs: what no cotangent that came can reach is not computed.
- `recompute.py`: What it costs to keep a forward value for the backward, and which values may be computed again
  instead.
- `regions.py`: Checkpointed functions in a joint graph: which of their values may be kept for the backward.
- `scan.py`: scan: a graph is run for each place of some arrays, and hands values on (scan of control flow in a graph).
- `stops.py`: Stops: where a compiled backward goes to Python, as data of the joint graph.
- `strategy.py`: Who owns the gradients of a compiled backward: how it is cut, where each gradient is written, what
  happens to it.
- `tensor_hooks.py`: Hooks on tensors that captured code makes: `y.register_hook(fn)` and `y.retain_grad()` as
  boundaries of the graph.
- `within.py`: A graph that holds backwards, differentiated anew, and taken apart where the last of them begins.
- `wrapper.py`: Runs a compiled forward, and its compiled backward when the tape reaches it.
"""
