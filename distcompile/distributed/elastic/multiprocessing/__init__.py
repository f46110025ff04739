"""torch.distributed.elastic.multiprocessing's path: `errors`."""
