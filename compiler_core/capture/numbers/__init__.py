"""Numbers that change from call to call: inputs of a graph, not constants; as places, sizes of selections, times."""
