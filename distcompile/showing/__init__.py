"""What people look at: a console as wide as there is room, a progress bar, and reports in a notebook."""
