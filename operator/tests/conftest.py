"""Profiles of hypothesis: RLJOB_PROFILE is ci (as in `make check`), coverage (as in `make coverage`) or nightly."""

import os

from hypothesis import HealthCheck, settings

# CI machines are shared, so the duration of an example says nothing about the code.
_calm = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("ci", _calm, max_examples=30)
settings.register_profile("coverage", _calm, max_examples=100)
settings.register_profile("nightly", _calm, max_examples=10_000)
settings.load_profile(os.environ.get("RLJOB_PROFILE", "ci"))
