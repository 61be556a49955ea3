"""Planners of ours beside the algorithms of others, on the same input and in the same run."""
