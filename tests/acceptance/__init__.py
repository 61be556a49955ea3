"""Runs with real verl and vLLM that `make test` has no time for: `make acceptance`."""
