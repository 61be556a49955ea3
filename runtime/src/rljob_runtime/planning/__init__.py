"""Arithmetic and tables for planning a run before it begins. Pure, standard library only; the operator uses it too."""
