"""torch.distributed.algorithms._checkpoint: modules whose forward is computed again in the backward."""
