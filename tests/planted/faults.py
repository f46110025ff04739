"""Faults that somebody might make, one at a time: of every stage of the pipeline, and those that were there once.

Each is a text of the sources and another that stands in its place; each must be found by tests of plain `pytest`.
`run.py` plants them in a copy of the tree. A text that is no longer there once, and once only, is an error: then the
fault is to be written anew, for what is there now.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """old, new: texts. found_by: files of tests, any of which fails, with `-k` after a colon to save time.

    was: silent faults of earlier days that this one is, or is like.
    """

    name: str
    stage: str
    old: str
    new: str
    found_by: tuple[str, ...]
    was: str = ""


FAULTS = (
    # -- capture
    Fault(
        "a guard compares a constant's type alone",
        "capture, guards",
        'condition = f"type({code}) is {type(value).__name__} and {code} == {value!r}"',
        'condition = f"type({code}) is {type(value).__name__}"',
        ("test_recapture.py", "test_reached.py"),
    ),
    Fault(
        "the first change that captured code makes is not made at later calls",
        "capture, effects",
        "for change in segment.record.replayed():\n        recipe",
        "for change in segment.record.replayed()[1:]:\n        recipe",
        ("test_capture_effects.py",),
    ),
    Fault(
        "the clock is vouched for as pure",
        "capture, purity",
        'datetime.datetime: "combine fromisoformat utcfromtimestamp",',
        'datetime.datetime: "combine fromisoformat now today utcfromtimestamp utcnow",',
        ("test_purity.py",),
        was="time was a constant in compiled code",
    ),
    Fault(
        "of several contributions to a gradient the last is kept",
        "joint graph",
        "self.table[node] = prims.add(before, value)",
        "self.table[node] = value",
        ("test_joint.py",),
    ),
    Fault(
        "a saved value is thought to stand behind the results",
        "partition",
        "return Partition(forward, backward, tuple(outputs.index(node) for node in values))",
        "return Partition(forward, backward, tuple(len(results) + k for k in range(len(values))))",
        ("test_partition.py",),
    ),
    # -- passes and lowering
    Fault(
        "factors are joined whatever the dtype holds",
        "graph passes",
        "return a * b if in_range and all(is_normal(dtype, number) for number in (a, b, a * b)) else None",
        "return a * b",
        ("test_graph_passes.py", "test_random_constants.py"),
        was="(x * 1000) * 128 in float16 was infinite",
    ),
    Fault(
        "what n does not divide is dropped from a quotient",
        "index arithmetic",
        "return first if first == high // n else None",
        "return first if first == high // n or len(rest.terms) == 1 else None",
        ("test_index.py", "test_lowering.py"),
    ),
    Fault(
        "a reader of other elements is fused",
        "fusion",
        "same = read.cols is None and available == level",
        "same = available == level",
        ("test_fusion.py", "test_schedule_fuzz.py"),
    ),
    Fault(
        "temps that meet in one step share memory",
        "memory plan",
        "for node in self._union(life.first, life.last):",
        "for node in self._union(life.first, life.last - 1):",
        ("test_memory_plan.py",),
    ),
    Fault(
        "an operand that is still needed is written over",
        "memory plan",
        "return result.first == step == operand.last",
        "return result.first == step <= operand.last",
        ("test_in_place.py", "test_schedule_models.py"),
    ),
    # -- tensors and the tape
    Fault(
        "a write leaves no version behind",
        "tensors, versions",
        "            self.stamp += 1\n            self.version += 1\n            return\n",
        "            self.stamp += 1\n            return\n",
        ("test_written_after_use.py",),
    ),
    Fault(
        "of several gradients of the tape the last is kept",
        "tape",
        "grad if before is None or before is HANDLED else added(before, grad)",
        "grad",
        ("test_engine.py",),
    ),
    # -- what programs run through
    Fault(
        "what a call takes from the stack comes in the other order",
        "bytecode",
        "    del stack[-count:]\n    return values\n",
        "    del stack[-count:]\n    return values[::-1]\n",
        ("test_bytecode_programs.py",),
    ),
    Fault(
        "what a scatter adds to is written over",
        "lowering",
        'written = call("add", (base, value)) if mode == "add" else value',
        "written = value",
        ("test_lowering.py",),
    ),
    # -- code
    Fault(
        "clamping swallows NaN",
        "C++",
        'return f"({a.texts[other]} {keep} {a.texts[constant]} ? {a.texts[constant]} : {a.texts[other]})"',
        'return f"({a.texts[constant]} {keep} {a.texts[other]} ? {a.texts[other]} : {a.texts[constant]})"',
        ("test_cpp_scalars.py",),
    ),
    Fault(
        "small results of expm1 lose their digits",
        "Triton",
        '"expm1": _helper("expm1"),\n    "sin": _call("sin"),',
        '"expm1": lambda a: f"(tl.exp({a.texts[0]}) - 1)",\n    "sin": _call("sin"),',
        ("test_triton.py:scalars_equal",),
    ),
    Fault(
        "a changed pass finds what the old one compiled",
        "cache",
        '_APART = ("bytecode", "capture", "eager", "numpy_trace")',
        '_APART = ("bytecode", "capture", "eager", "graph", "numpy_trace")',
        ("test_artefact_cache.py",),
        was="the cache key left out the passes",
    ),
    Fault(
        "draws of one call overlap those of the next",
        "random numbers",
        "first, self.offset = self.offset, self.offset + draws",
        "first, self.offset = self.offset, self.offset + 1",
        ("test_generator.py", "test_capture_environment.py"),
    ),
    # -- distributed data parallel
    Fault(
        "the second gradient of a segment is not averaged",
        "splitter",
        "for i in planned:\n            dtype",
        "for i in planned[:1] + planned[2:]:\n            dtype",
        ("test_splitter.py",),
    ),
    Fault(
        "slots of a bucket overlap",
        "bucket plan",
        "end += -(-member.numel // step) * step",
        "end += member.numel // step * step",
        ("test_bucket_plan.py",),
    ),
    Fault(
        "gradients of eager code are summed and not averaged",
        "reducer",
        "parameter.device.scale(gradient, self.scale, out=view)",
        "parameter.device.scale(gradient, 1.0, out=view)",
        ("test_ddp_eager.py",),
    ),
    Fault(
        "gradients of no_sync() are lost where the backward is compiled",
        "reducer",
        "elif (tensor._grad is not None or tensor in grads) and index not in self.missing:",
        "elif tensor in grads and index not in self.missing:",
        ("test_ddp_contract.py", "test_ddp_compiled.py"),
    ),
    Fault(
        "who reads a gradient does not wait for its bucket",
        "landing",
        "self.reached[place] = self.flight.mark()\n        self.flight.works[place].wait()",
        "self.reached[place] = self.flight.mark()",
        ("test_overlap_step.py",),
    ),
    Fault(
        "names that a module wants left alone are reduced",
        "wrapping",
        "getattr(module, IGNORED, ())",
        "()",
        ("test_parameters_that_differ.py:left_alone",),
        was="_ddp_params_and_buffers_to_ignore was ignored",
    ),
    # -- collectives and launcher
    Fault(
        "ranks are added up from the last to the first",
        "collectives",
        "for source in sources[1:]:\n        UFUNCS",
        "for source in sources[:0:-1]:\n        UFUNCS",
        ("test_communicator_semantics.py",),
    ),
    Fault(
        "bfloat16 sums are rounded half up",
        "collectives",
        "u32 rounded = bits + 0x7fff + ((bits >> 16) & 1);",
        "u32 rounded = bits + 0x8000;",
        ("test_under_mpi.py",),
    ),
    Fault(
        "a forked child's communicator is its parent's",
        "collectives",
        "for thing in inherited:\n        thing.become_forked(error)",
        "for thing in ():\n        thing.become_forked(error)",
        ("test_forked.py",),
        was="a DataLoader's worker paired with another rank's parent",
    ),
    Fault(
        "an error that another rank caused is taken for the cause",
        "launcher",
        "able = [cause for cause in found if not cause.is_consequence]",
        "able = list(found)",
        ("test_cause.py",),
    ),
    Fault(
        "an average by copy engines is a sum",
        "collectives on GPUs",
        'divisor = self.world_size if op == "avg" else 1',
        "divisor = 1",
        ("test_nccl_copies.py",),
    ),
    # -- training
    Fault(
        "Adam's second moment is not corrected",
        "optimizer",
        '"root_scale": 1 / math.sqrt(1 - beta2**step),',
        '"root_scale": 1.0,',
        ("test_optimizers_against_torch.py:Adam",),
    ),
    Fault(
        "losses are computed in 16 bits under autocast",
        "autocast",
        '"""A function that autocast computes in float32."""\n    return _policy(function, _to_float32)',
        '"""A function that autocast computes in float32."""\n    return _policy(function, _to_lower)',
        ("test_autocast_against_torch.py",),
    ),
    Fault(
        "every epoch has the order of the first",
        "data",
        "generator.manual_seed(self.seed + self.epoch)",
        "generator.manual_seed(self.seed)",
        ("test_loading_contract.py", "test_data_against_torch.py"),
    ),
    Fault(
        "the oldest checkpoint is taken",
        "checkpoints",
        "if NAME.fullmatch(p.name)), reverse=True)",
        "if NAME.fullmatch(p.name)))",
        ("test_checkpoints.py",),
    ),
    # -- proofs and plans
    Fault(
        "any error of eager code excuses any of compiled code",
        "parity",
        'failure = "" if compiled_error <= limit else',
        'failure = "" if compiled_error <= limit or eager_error > 0 else',
        ("test_mutations.py", "test_parity_check.py"),
    ),
    Fault(
        "the first segment, too, is charged for a cut",
        "tuning",
        "(problem.gamma_s if number else 0.0)",
        "problem.gamma_s",
        ("test_optimum.py", "test_tune.py"),
    ),
)
