"""Chains of small named checks: facts in, violations out, no I/O."""
