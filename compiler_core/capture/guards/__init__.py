"""Guards: what must still hold for a traced graph to be the right one; of arguments, modules, memory, containers."""
