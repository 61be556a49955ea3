"""Checks that a spec passes before it may take an NPU. Pure."""
