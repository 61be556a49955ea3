"""Stacks of a run that hangs: `register` in every process, `gather` on each node, `frames` to read them.

The launcher asks for them when the operator says that no step comes (StopMode.STALLED; see stall.py). Everything is
bounded: in time, in processes and in bytes.
"""
