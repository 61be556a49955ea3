"""Checks of every node before a run. Facts are gathered on all nodes in parallel and evaluated on the head.

`gather` runs on each node and does I/O, `evaluate` is pure, `report` builds the table. preflight.py runs them.
"""
