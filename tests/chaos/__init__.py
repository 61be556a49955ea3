"""Runs on the local cluster that are struck by what surrounds them: README.md."""
