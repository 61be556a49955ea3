"""Fixtures of tests/e2e."""

from tests.e2e.conftest import admin, alone, kube

__all__ = ["admin", "alone", "kube"]
