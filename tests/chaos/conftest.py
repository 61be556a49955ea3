"""Fixtures of the tests by hand: those of tests/e2e."""

from tests.e2e.conftest import admin, alone, kube

__all__ = ["admin", "alone", "kube"]
