"""Stack traces of a hanging run: `register` in every process, `gather` on each node, `frames` to interpret them.

The launcher gathers them when the operator reports that no step completes (StopMode.STALLED; see stall.py). Time,
number of processes and size are limited.
"""
