"""Communication hooks for DistributedDataParallel: default_hooks, powerSGD_hook, post_localSGD_hook.

In: a state and a `GradBucket`. Out: a Future of the reduced flat gradients. See distcompile/ddp/comm_hook.py.
"""

from __future__ import annotations

from distcompile.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook

__all__ = ["default_hooks", "post_localSGD_hook", "powerSGD_hook"]
