"""torch.distributed.algorithms' names: communication hooks, averaging of models, uneven batches."""
