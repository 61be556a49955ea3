"""Checks of a spec that follow from how verl works."""
