"""What people look at: a console as wide as there is room, a progress bar, and tracebacks without our own frames.

Tables of reports are in compiler_core/showing.
"""
