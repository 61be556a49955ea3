"""The check of every node before a run: facts are gathered on the nodes side by side, and judged on the head.

`gather` runs on each node and does I/O; `judge` is pure; `report` makes the table. node_preflight.py sends them.
"""
