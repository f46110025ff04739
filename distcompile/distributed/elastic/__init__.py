"""torch.distributed.elastic's paths. The launcher is `distcompile-run`; what scripts import of it is here."""
