"""What the compiler core knows of modules: a version, or a watch, that tells when a graph may no longer be right.

In: any object. Out: `is_module`, and typed access to the protocol that `distcompile.nn.Module` implements.
`__tree_version__()` changes with parameters, buffers, children, attributes, hooks and training flags anywhere below.
`__watch__()` sees the same of given modules, or of their attributes that matter, and the hooks on all modules.
`__gradient_strategy__()`, where there is one, owns the gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from compiler_core.aot.strategy import GradientStrategy, LocalGradients, OwnerStrategy, SeveralOwners
from compiler_core.records import dataclass
from compiler_core.watch import Watch

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


class ModuleProtocol(Protocol):
    """A tree of parameters and buffers that can be called."""

    def __tree_version__(self) -> int: ...
    @staticmethod
    def __watch__(modules: Iterable[WatchedModule]) -> Watch: ...
    def named_parameters(self) -> Iterator[tuple[str, Tensor]]: ...
    def named_buffers(self) -> Iterator[tuple[str, Tensor]]: ...
    def named_modules(self) -> Iterator[tuple[str, ModuleProtocol]]: ...
    def modules(self) -> Iterator[ModuleProtocol]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class WatchedModule:
    """A module on which captured code depends.

    text: what the user calls it. names: its attributes that matter; None: all, also those it does not have yet.
    """

    module: ModuleProtocol
    text: str
    names: frozenset[str] | None = None


def watch_modules(modules: Iterable[WatchedModule]) -> Watch:
    """A watch that changes when one of these modules (not what is below them) does, or the hooks on all modules.

    Parameters, buffers, children, attributes, hooks and training flag are seen, tensors' values and the contents of
    other containers are not. See `compiler_core/watch.py`.
    """
    given = list(modules)
    kind: type[ModuleProtocol] = type(unwrapped(given[0].module))
    return kind.__watch__(given)


def is_module(thing: object) -> bool:
    """Whether `thing` (not a class) follows the protocol."""
    return hasattr(type(thing), "__tree_version__")


def is_module_class(thing: object) -> bool:
    """Whether the instances of `thing` follow the protocol."""
    return isinstance(thing, type) and hasattr(thing, "__tree_version__")


def unwrapped(thing: Any) -> Any:
    """What a compiled function or module was made of; anything else is itself."""
    while getattr(type(thing), "__wraps_original__", False):
        thing = thing.__wrapped__
    return thing


def gradient_strategy(
    announced: Sequence[object], root: object | None, leaves: Iterable[Tensor], *, is_whole: bool = True
) -> GradientStrategy:
    """Who owns the gradients of a captured graph.

    announced: the modules whose forwards begin in it (`announce_gradient_owner`). root: the module that is compiled.
    is_whole: whether the graph is the whole call, from its first instruction to its return; if not, it is a part of a
    forward, like those between graph breaks. leaves: the tensors that it differentiates, the same in every call: what
    begins no forward is part of one if they have one owner. With several the tape finds out whose forward it was.
    """
    found = [_announced_by(module) for module in (announced or ((root,) if is_whole else ()))]
    begun = [strategy for strategy in found if strategy is not None]
    if len(begun) > 1:
        return SeveralOwners(begun)
    if begun:
        return begun[0] if is_whole else begun[0].of_part()
    owners = [_owners(leaf) for leaf in leaves]
    certain = {id(found[0]): found[0] for found in owners if len(found) == 1}
    if len(certain) == 1:
        return certain.popitem()[1]
    possible = {id(owner): owner for found in owners for owner in found}
    return SeveralOwners(list(possible.values())) if possible else LocalGradients()


def forwards_ran(ended: Iterable[object]) -> None:
    """Tell the strategies of these modules that their forwards have run."""
    for module in ended:
        strategy = _announced_by(module)
        if strategy is not None:
            strategy.forward_ran()


def _announced_by(module: object) -> OwnerStrategy | None:
    announce = getattr(module, "__gradient_strategy__", None)
    return None if announce is None else announce()


def _owners(leaf: Tensor) -> Sequence[GradientStrategy]:
    hooks = leaf._hooks
    return () if hooks is None or hooks.owner is None else hooks.owner.strategies()
