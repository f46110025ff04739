"""torch.func: derivatives of functions (derivatives.py), `vmap` (mapping.py), modules as functions of their parameters.

stack_module_state: of several modules of one kind, their parameters and buffers as one batch each, for vmap.
functional_call: a module called with other parameters. In: a module, tensors by their dotted names, arguments. Out:
what forward returns; the module keeps its own tensors. Inside of a compiled function the tensors are inputs of the
graph like any others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from compiler_core.ops.functional import stack
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, StateDictError
from distcompile.nn.module import Module
from distcompile.surface.derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from distcompile.surface.mapping import vmap

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "stack_module_state",
    "vjp",
    "vmap",
]

Tensors = Mapping[str, Tensor]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Tensors | Sequence[Tensors],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs), with the tensors given in the place of the module's own of those names.

    args: a tuple, or the one argument. tie_weights: a tensor for one name of a shared parameter is there under
    its other names too. strict: every name, and no other, is given.
    Raises: StateDictError for names that do not fit (strict), or if two tensors are given for one shared parameter.
    """
    if isinstance(parameter_and_buffer_dicts, Mapping):
        tensors = dict(parameter_and_buffer_dicts)
    else:
        tensors = {}
        for part in parameter_and_buffer_dicts:
            if repeated := tensors.keys() & part.keys():
                raise StateDictError(f"{sorted(repeated)} appeared in multiple dictionaries; behavior is ambiguous")
            tensors.update(part)
    places = _places(module)
    if tie_weights:
        tensors = _with_tied(tensors, places)
    if strict and (unknown := tensors.keys() ^ places.keys()):
        raise StateDictError(f"functional_call(strict=True): names do not fit: {sorted(unknown)}")
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swapped({name: tensor for name, tensor in tensors.items() if name in places}, places):
        return module(*arguments, **(kwargs or {}))


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of modules of one kind, by name, stacked along a new first dim: for an ensemble
    computed by `vmap` of `functional_call`. They are leaves of their own; parameters require gradients as theirs do.

    Raises: ArgumentError without a module, for modules of several types or modes, or if only some require a gradient.
    """
    if not models:
        raise ArgumentError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise ArgumentError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len(kinds := {type(model) for model in models}) > 1:
        got = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ArgumentError("stack_module_state: Expected all models to be of the same class.", got=got)
    return _stacked([m.named_parameters() for m in models]), _stacked([m.named_buffers() for m in models])


def _stacked(states: Sequence[Iterator[tuple[str, Tensor]]]) -> dict[str, Tensor]:
    each = [dict(state) for state in states]
    return {name: _stack(name, [state[name] for state in each]) for name in each[0]}


def _stack(name: str, tensors: list[Tensor]) -> Tensor:
    needing = {tensor.requires_grad for tensor in tensors}
    if len(needing) > 1:
        raise ArgumentError("Expected parameters from different models to have the same .requires_grad", got=name)
    stacked: Tensor = stack([tensor.detach() for tensor in tensors])
    return stacked._require(needing.pop())


Places = dict[str, tuple[Any, str]]


def _places(module: Module) -> Places:
    """Dotted name -> (the registry that holds it, its name there)."""
    places: Places = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        for registry in (owner._parameters, owner._buffers):
            places.update({f"{path}.{k}" if path else k: (registry, k) for k, t in registry.items() if t is not None})
    return places


def _with_tied(tensors: dict[str, Tensor], places: Places) -> dict[str, Tensor]:
    """`tensors`, and the same under the other names of shared parameters."""
    names: dict[Tensor, list[str]] = {}  # by identity
    for name, (registry, key) in places.items():
        names.setdefault(registry[key], []).append(name)
    result = dict(tensors)
    for group in names.values():
        given = [name for name in group if name in tensors]
        if any(tensors[name] is not tensors[given[0]] for name in given[1:]):
            raise StateDictError(f"functional_call got values for both {given}, which are tied",
                                 remedy="give one of them, or tie_weights=False")  # fmt: skip
        result.update({name: tensors[given[0]] for name in group if given})
    return result


@contextmanager
def _swapped(tensors: Tensors, places: Places) -> Iterator[None]:
    before = {name: places[name][0][places[name][1]] for name in tensors}
    _put(tensors, places)
    try:
        yield
    finally:
        _put(before, places)


def _put(tensors: Tensors, places: Places) -> None:
    """Under a trace past the registry's stamp: when the call ends, nothing has changed."""
    for name, tensor in tensors.items():
        registry, key = places[name]
        (dict.__setitem__ if current_trace() is not None else type(registry).__setitem__)(registry, key, tensor)
