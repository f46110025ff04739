"""What programs of libraries share: weights by name, data from a seed, steps that are noted down.

In: modules. Out: `Found`: name -> array: the loss, every gradient, the losses of the steps. The same file runs under
torch and under distcompile; numbers are float64 but where a library computes in float32.
"""

from __future__ import annotations

import os
import sys
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

Found = dict[str, np.ndarray]
STEPS = 3
KEPT: list[Any] = []  # a torch.library.Library registers for as long as it lives
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")
warnings.simplefilter("ignore")


def provide_torchvisions_operators() -> None:
    """Where torch is real and cannot load torchvision's operators: their schemas, which torchvision's import needs."""
    if "distcompile" in torch.__version__:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        KEPT.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            KEPT[0].define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def draw(*shape: int, seed: int = 0, dtype: str = "float64") -> Any:
    """Normal numbers."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def classes(count: int, *shape: int, seed: int = 0) -> Any:
    """Whole numbers below `count`."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, count, shape))


def with_weights(module: nn.Module) -> nn.Module:
    """Parameters drawn from their names, so that values neither vanish nor explode; no dropout."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            drawn = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(tuple(parameter.shape))
            if parameter.ndim > 1:
                drawn /= np.sqrt(np.prod(parameter.shape[1:]))
            else:
                drawn = drawn * 0.1 + (1.0 if name.endswith(("weight", "gamma")) else 0.0)
            parameter.copy_(torch.from_numpy(np.asarray(drawn)))
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return module.train()


def gradients(module: nn.Module) -> Found:
    """Every gradient that there is, by name."""
    with_gradients = ((name, p) for name, p in module.named_parameters() if p.grad is not None)
    return {f"g.{name}": p.grad.detach().numpy().copy() for name, p in with_gradients}


def steps(
    module: nn.Module, loss_of: Callable[[Any], Any], mode: str, optimizer: Any = None, lr: float = 0.01
) -> Found:
    """A few steps of `loss_of(module)`, the module compiled where mode says so: loss, first gradients, losses."""
    called: Any = torch.compile(module) if mode == "compiled" else module
    optimizer = optimizer or torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=lr)
    found: Found = {}
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(called)
        loss.backward()
        if step == 0:
            found = gradients(module)
        losses.append(loss.item())
        optimizer.step()
    return found | {"loss": np.array(losses[0]), "losses": np.array(losses)}
