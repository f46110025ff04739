"""torch.distributed.algorithms' names: communication hooks, and averaging of models."""
