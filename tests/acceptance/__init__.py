"""Runs with real verl and vLLM that are too long for `make test`: see `make acceptance`."""
