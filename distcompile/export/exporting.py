"""`export`: a call of a module as an ExportedProgram.

In: a module, example arguments, which sizes may change. Out: the program; the module, the arguments, and what else the
call would change are as before. Capture is compile's, under fullgraph rules (compiler_core/capture/whole_call.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compiler_core.capture.whole_call import PLAIN, Traced, Wanted, trace_call
from compiler_core.graph.sizes import symbols_of
from compiler_core.memory_format import strided
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import flatten
from distcompile.errors import ArgumentError
from distcompile.export.dynamic_shapes import Declared, asked_of, check
from distcompile.export.exported_program import CallSpec, ExportedProgram
from distcompile.export.graph_signature import (
    Argument,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from distcompile.nn.module import Module
from distcompile.utils._pytree import tree_flatten_with_path

_ROLES = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer", InputKind.USER_INPUT: "input"}
_WRITTEN = {
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
}


def export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: Sequence[str] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """The program that `mod(*args, **kwargs)` runs, for tensors like these and, where they are declared, other sizes.

    The call becomes one graph; nothing is changed by it: what it writes (running statistics, arguments in place) is an
    output. Numbers, texts and None among the arguments are constants. Dropout, batch norm and the like are in the mode
    in which the module is.

    Args:
        mod: a Module.
        args, kwargs: of the example call; tensors in any nesting of containers.
        dynamic_shapes: which sizes may change: for each argument, by name (a dict) or by place, None, or for each dim
            of the tensor a `Dim`, `Dim.AUTO`, `Dim.DYNAMIC`, `Dim.STATIC`, a number or None; containers as their like.
        strict and what follows it: torch's, without effect.

    Raises: GraphBreak where the call cannot be captured, with the user's line; ConstraintViolationError where a size
    that was declared is fixed or narrowed, with the line that asked for it; CannotExport for what is no program from
    tensors to tensors; ArgumentError for what is no Module, and for shapes that do not fit the arguments.

    Example:
        >>> from distcompile.export import Dim, export
        >>> batch = Dim("batch")
        >>> program = export(nn.Linear(3, 2), (torch.zeros(4, 3),), dynamic_shapes={"input": {0: batch}})
        >>> program.module()(torch.zeros(7, 3)).shape
        (7, 2)
    """
    if not isinstance(mod, Module):
        raise ArgumentError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise ArgumentError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    given, named = _apart(args, dict(kwargs or {}))
    declared = asked_of(mod.forward, given, named, dynamic_shapes)
    user = [*_user_inputs(mod, given, named)]
    wanted = [*_state(mod), *((InputKind.USER_INPUT, name, leaf) for name, leaf in user if isinstance(leaf, Tensor))]
    traced = trace_call(mod, given, named, [_wanted(*one, declared) for one in wanted])
    check(traced, _by_place(wanted, declared))
    signature = _signature(mod, traced, wanted, user)
    state = dict(_named_tensors(mod))
    spec = CallSpec(flatten((given, named))[1], traced.tree)
    example = (args, dict(kwargs or {}))
    return ExportedProgram(
        traced.graph,
        signature,
        state,
        traced.constants,
        spec,
        traced.draws,
        traced.shard,
        mod.training,
        {symbol.name: symbol.hint or 0 for symbol in symbols_of(traced.graph)},
        example,
    )


def _apart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, each tensor one of its own: what is given twice, or is a view, may be another thing next time."""
    seen: set[int] = set()
    leaves, spec = flatten((args, kwargs))
    for k, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor):
            if not isinstance(leaf, PLAIN):
                what = f"an exported program takes no argument of type {type(leaf).__name__}"
                raise ArgumentError(what, expected="tensors, numbers, texts, None, in containers")
            continue
        if leaf.layout is not strided:
            raise ArgumentError(f"an exported program takes no tensor of layout {leaf.layout}", expected="a dense one")
        cell = leaf._cell
        if id(cell.root) in seen or cell is not cell.root:
            leaves[k] = leaf.detach().clone().contiguous().requires_grad_(leaf.requires_grad)
        seen.add(id(cell.root))
    made: tuple[tuple[Any, ...], dict[str, Any]] = spec.unflatten(leaves)
    return made


def _named_tensors(mod: Module) -> Iterator[tuple[str, Tensor]]:
    yield from mod.named_parameters(remove_duplicate=False)
    yield from mod.named_buffers(remove_duplicate=False)


def _state(mod: Module) -> Iterator[tuple[InputKind, str, Tensor]]:
    """Parameters and buffers, each once: of tied ones the first name."""
    for kind, pairs in ((InputKind.PARAMETER, mod.named_parameters()), (InputKind.BUFFER, mod.named_buffers())):
        for name, tensor in pairs:
            yield kind, name, tensor


def _user_inputs(mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(name, leaf) of the leaves of (args, kwargs), in order: `x`, `batch['mask']`."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [name for name, one in inspect.signature(mod.forward).parameters.items() if one.kind in kinds]
    for (side, top, *rest), leaf in tree_flatten_with_path((args, kwargs))[0]:
        if side.idx == 1:
            name = str(top.key)
        else:
            name = positional[top.idx] if top.idx < len(positional) else f"args[{top.idx - len(positional)}]"
        yield name + "".join(map(str, rest)), leaf


def _wanted(kind: InputKind, name: str, tensor: Tensor, declared: Mapping[int, Mapping[int, Declared]]) -> Wanted:
    prefix = {InputKind.PARAMETER: "p_", InputKind.BUFFER: "b_"}.get(kind, "")
    dims = {dim: one.asked for dim, one in declared.get(id(tensor), {}).items()}
    return Wanted(tensor, prefix + _identifier(name), _ROLES[kind], name, dims)


def _identifier(name: str) -> str:
    made = "".join(c if c.isalnum() and c.isascii() else "_" for c in name.replace("'", "").replace("]", ""))
    return made if made and not made[0].isdigit() else f"v{made}"


def _by_place(
    wanted: Sequence[tuple[InputKind, str, Tensor]], declared: Mapping[int, Mapping[int, Declared]]
) -> dict[tuple[int, int], Declared]:
    return {
        (k, dim): one for k, (_, _, tensor) in enumerate(wanted) for dim, one in declared.get(id(tensor), {}).items()
    }


# -- signature


def _signature(
    mod: Module, traced: Traced, wanted: Sequence[tuple[InputKind, str, Tensor]], user: Sequence[tuple[str, Any]]
) -> ExportGraphSignature:
    nodes = iter(traced.graph.inputs)
    inputs: list[InputSpec] = []
    persistent = _persistent(mod)
    for kind, name, _ in wanted:
        if kind is not InputKind.USER_INPUT:
            kept = name in persistent if kind is InputKind.BUFFER else None
            inputs.append(InputSpec(kind, TensorArgument(next(nodes).name), name, kept))
    inputs += [
        InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(next(nodes).name), name) for name in traced.constants
    ]
    for name, leaf in user:
        arg = (
            TensorArgument(next(nodes).name) if isinstance(leaf, Tensor) else ConstantArgument(_identifier(name), leaf)
        )
        inputs.append(InputSpec(InputKind.USER_INPUT, arg))
    inputs += [InputSpec(InputKind.RNG_KEY, TensorArgument(node.name)) for node in nodes]
    return ExportGraphSignature(inputs, _outputs(traced, wanted, [node.name for node in traced.inputs]))


def _persistent(mod: Module) -> set[str]:
    """The names of the buffers that are in the state dict."""
    return {
        f"{path}.{name}" if path else name
        for path, module in mod.named_modules(remove_duplicate=False)
        for name in module._buffers
        if name not in module._non_persistent_buffers_set
    }


def _outputs(traced: Traced, wanted: Sequence[tuple[InputKind, str, Tensor]], names: Sequence[str]) -> list[OutputSpec]:
    made = [node.name for node in traced.graph.outputs]
    specs = []
    for place, k in enumerate(traced.written):
        kind, name, _ = wanted[k]
        target = names[k] if kind is InputKind.USER_INPUT else name
        specs.append(OutputSpec(_WRITTEN[kind], TensorArgument(made[place]), target))
    for k, result in enumerate(traced.results):
        arg: Argument
        if result.index >= 0:
            arg = TensorArgument(made[result.index])
        elif isinstance(result.value, Sym):
            arg = SymIntArgument(str(result.value), result.value)
        else:
            arg = ConstantArgument(f"output_{k}", result.value)
        specs.append(OutputSpec(OutputKind.USER_OUTPUT, arg))
    return specs
