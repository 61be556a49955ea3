"""Faults under runs on the local cluster: README.md."""
