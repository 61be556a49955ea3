"""Checks that a spec must pass before it may take an NPU."""
