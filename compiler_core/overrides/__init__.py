"""`__torch_function__`: calls that are handed to the class of an argument, or to a mode, instead of being computed."""
