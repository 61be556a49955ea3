"""Faults during runs on the local cluster: see README.md."""
