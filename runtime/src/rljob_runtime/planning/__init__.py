"""Arithmetic and tables for planning a run. Pure and limited to the standard library; the operator uses it too."""
