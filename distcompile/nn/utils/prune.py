"""torch.nn.utils.prune: entries of a parameter held at zero by a mask.

In: a module, the name of one of its parameters, and how much of it goes: a fraction (float) or a number of entries, or
of channels (int). Out: the module, of which `name_orig` is the parameter now, `name_mask` a buffer, and `name` their
product, computed before each forward; `remove` makes the product the parameter. A parameter that is pruned again keeps
what was pruned before: the methods become one `PruningContainer`, and amounts are of what is left.
Sources of the methods: Han et al. 2015, "Learning both Weights and Connections" (by size); torch's documentation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import distcompile as dc
from distcompile.errors import ArgumentError
from distcompile.nn.module import Module

Tensor = Any
UNSTRUCTURED, STRUCTURED, GLOBAL = "unstructured", "structured", "global"


class BasePruningMethod(ABC):
    """A hook that runs before a module's forward, and a rule that makes masks.

    PRUNING_TYPE: what amounts count: "unstructured" entries that are left, "structured" channels of which something is
    left, "global" all entries.
    """

    PRUNING_TYPE = UNSTRUCTURED
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of `t`, the entries' importances, of which default_mask has let some through; of t's shape."""

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned tensor: the parameter times its mask."""
        name = self._tensor_name
        mask, original = getattr(module, f"{name}_mask"), getattr(module, f"{name}_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune `module`'s parameter `name`, perhaps again. importance_scores: instead of the entries themselves."""
        before = [(key, hook) for key, hook in _hooks_of(module) if hook._tensor_name == name]
        if len(before) > 1:
            raise ArgumentError(f"there are {len(before)} pruning hooks on {name}", expected="one, or none")
        made = cls(*args, **kwargs)
        made._tensor_name = name
        method: BasePruningMethod = made
        if before:
            method = PruningContainer(before[0][1])
            method.add_pruning_method(made)
        mask = method._mask_of(module, importance_scores)  # nothing has changed where this fails
        for key, _ in before:
            del module._forward_pre_hooks[key]
        if not before:
            module.register_parameter(f"{name}_orig", module._parameters.pop(name))
        module.register_buffer(f"{name}_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def _mask_of(self, module: Module, importance_scores: Tensor | None) -> Tensor:
        name = self._tensor_name
        tensor = getattr(module, name)
        if importance_scores is not None and importance_scores.shape != tensor.shape:
            raise ArgumentError(
                f"importance_scores should have the same shape as parameter {name} of {module}",
                expected=str(tuple(tensor.shape)), got=str(tuple(importance_scores.shape)),
            )  # fmt: skip
        scores = tensor if importance_scores is None else importance_scores
        default = module._buffers.get(f"{name}_mask")
        with dc.no_grad():
            before = dc.ones_like(tensor) if default is None else default.detach().clone()
            return self.compute_mask(scores.detach(), default_mask=before)

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A pruned copy of `t`, which belongs to no module."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise ArgumentError("importance_scores should have the same shape as tensor t")
        default = dc.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default)

    def remove(self, module: Module) -> None:
        """The pruned tensor is the parameter from now on; hook, mask and original are gone."""
        name = self._tensor_name
        pruned = self.apply_mask(module)
        module.__dict__.pop(name, None)
        original = module._parameters.pop(f"{name}_orig")
        assert original is not None
        original.data = pruned.data
        del module._buffers[f"{name}_mask"]
        module.register_parameter(name, original)


class PruningContainer(BasePruningMethod):
    """Several methods, one after the other: the last computes a mask for what the others have left."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        methods = args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args
        for method in methods:
            if not self._pruning_methods:
                self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """One more, of the same parameter."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ArgumentError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to "
                f"PruningContainer {self}. Found '{method._tensor_name}'"
            )
        more = method._pruning_methods if isinstance(method, PruningContainer) else (method,)
        self._pruning_methods += more

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method = self._pruning_methods[-1]
        if method.PRUNING_TYPE == UNSTRUCTURED:
            part: Any = default_mask == 1
        elif method.PRUNING_TYPE == STRUCTURED:
            dim = method.dim % t.dim()  # type: ignore[attr-defined]
            others = tuple(d for d in range(t.dim()) if d != dim)
            left = (t * default_mask).abs().sum(dim=others) != 0 if others else (t * default_mask) != 0
            part = (*(slice(None),) * dim, left)
        elif method.PRUNING_TYPE == GLOBAL:
            part = (slice(None),) * t.dim()
        else:
            raise ArgumentError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = default_mask.clone()
        mask[part] = method.compute_mask(t[part], default_mask=default_mask[part]).to(dtype=mask.dtype)
        return mask


# ---- the methods


class Identity(BasePruningMethod):
    """All stay: the parameter is only laid out as if pruned."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Unstructured(BasePruningMethod):
    """Single entries."""

    def __init__(self, amount: float) -> None:
        _check_amount(amount)
        self.amount = amount

    def _places(self, t: Tensor, n: int) -> Tensor:
        """Which n entries of the flat tensor go."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        n = _number(self.amount, t.numel(), "parameters")
        mask = default_mask.clone()
        if n:
            mask.view(-1)[self._places(t, n)] = 0
        return mask


class RandomUnstructured(_Unstructured):
    """Entries at random."""

    def _places(self, t: Tensor, n: int) -> Tensor:
        return dc.topk(dc.rand_like(t).view(-1), n).indices


class L1Unstructured(_Unstructured):
    """The entries nearest to zero."""

    def _places(self, t: Tensor, n: int) -> Tensor:
        return dc.topk(t.abs().reshape(-1), n, largest=False).indices


class _Structured(BasePruningMethod):
    """Whole channels along one dim."""

    PRUNING_TYPE = STRUCTURED

    def __init__(self, amount: float, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount, self.dim = amount, dim

    def _norms(self, t: Tensor) -> Tensor:
        """A number for each channel: those with the smallest go."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.dim() <= 1:
            raise ArgumentError(
                f"Structured pruning can only be applied to multidimensional tensors. Found tensor of shape {t.shape} "
                f"with {t.dim()} dims"
            )
        if not -t.dim() <= self.dim < t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        channels = t.shape[self.dim]
        n = _number(self.amount, channels, "channels")
        if not n:
            return default_mask
        kept = dc.zeros(channels, dtype=default_mask.dtype, device=t.device)
        kept[dc.topk(self._norms(t), channels - n, largest=True).indices] = 1
        shape = [1] * t.dim()
        shape[self.dim] = channels
        return default_mask * kept.reshape(shape)


class RandomStructured(_Structured):
    """Channels at random."""

    def _norms(self, t: Tensor) -> Tensor:
        return dc.rand(t.shape[self.dim], device=t.device)


class LnStructured(_Structured):
    """The channels of the smallest Ln-norm. n: as torch.norm's p."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _norms(self, t: Tensor) -> Tensor:
        others = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        return dc.norm(t, p=self.n, dim=others)


class CustomFromMask(BasePruningMethod):
    """What a mask of the user's says."""

    PRUNING_TYPE = GLOBAL

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def _check_amount(amount: Any) -> None:
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (isinstance(amount, float) and amount > 1):
        raise ArgumentError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _number(amount: float, size: int, what: str) -> int:
    """How many of `size` go."""
    if isinstance(amount, int):
        if amount > size:
            raise ArgumentError(f"amount={amount} should be smaller than the number of {what} to prune={size}")
        return amount
    return round(amount * size)


# ---- functions


def identity(module: Module, name: str) -> Module:
    """Lay `name` out as a pruned parameter, of which nothing is pruned."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune entries of `name` at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prune the entries of `name` that are nearest to zero."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune channels of `name` along `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prune the channels of `name` along `dim` whose Ln-norm is smallest."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune what `mask` says."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any, pruning_method: type[BasePruningMethod], importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prune the parameters [(module, name), ...] as if they were one vector. importance_scores: by (module, name)."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    if not isinstance(importance_scores, (dict, type(None))):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    places, scores = list(parameters), importance_scores or {}
    relevant = dc.cat([scores.get(p, getattr(*p)).detach().reshape(-1) for p in places])
    masks = dc.cat([getattr(m, f"{n}_mask", dc.ones_like(getattr(m, n).detach())).reshape(-1) for m, n in places])
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != UNSTRUCTURED:
        raise TypeError(f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
                        f"{pruning_method} of type {method.PRUNING_TYPE}")  # fmt: skip
    with dc.no_grad():
        found, start = container.compute_mask(relevant, masks), 0
    for module, name in places:
        tensor = getattr(module, name)
        custom_from_mask(module, name, found[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()


def remove(module: Module, name: str) -> Module:
    """What is pruned of `name` stays zero, but nothing holds it there any more."""
    for key, hook in _hooks_of(module):
        if hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ArgumentError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Whether any parameter of `module`, or of a module in it, is."""
    return any(_hooks_of(part) for part in module.modules())


def _hooks_of(module: Module) -> list[tuple[Any, BasePruningMethod]]:
    found = ((key, hook.fn) for key, hook in module._forward_pre_hooks.items())
    return [(key, function) for key, function in found if isinstance(function, BasePruningMethod)]
