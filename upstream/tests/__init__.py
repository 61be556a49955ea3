"""Tests of what is read from upstream: the readers on small sources, and that tables, verdicts and checks agree."""
